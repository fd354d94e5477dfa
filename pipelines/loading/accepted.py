"""Read the records that the validate stage accepted, as the rows that a load sends."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from fhir_service.paths import matching
from pipelines.home import arrow
from pipelines.home.spill import batches, is_whole
from pipelines.loading.row import AcceptedRow

ROWS_A_LOOK = 4_000
OF_ROW = "line lines key lane content_hash patient_id source_at amount_cents body".split()
"""The columns of `accepted.parquet` that a row has."""


class LoadPart(NamedTuple):
    """One of `of` parts. since: when the load began (UTC text), if another worker has begun the part before.

    A record with this row's line and an outcome at `since` or later got that outcome in this load.
    """

    number: int
    of: int
    since: str = ""

    def has(self, lane: str) -> bool:
        """True if the rows of a lane belong to this part. The high bits of the lane's hash decide."""
        return crc32(lane.encode()) * self.of >> 32 == self.number

    def only(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of this part. The rows need a column `lane`."""
        lanes = rows.column("lane").dictionary_encode()
        here = [self.has(lane) for lane in lanes.dictionary.to_pylist()]
        return rows.filter(arrow.column(here, pa.bool_()).take(lanes.indices))


def accepted_rows(path: Path, now: str) -> Iterator[list[AcceptedRow]]:
    """Yield the rows of `accepted.parquet` in the validate stage's order, some at a time. now: UTC text."""
    for page in accepted_pages(path):
        yield as_rows(page, now)


def accepted_pages(path: Path, part: LoadPart | None = None) -> Iterator[pa.RecordBatch]:
    """Yield accepted records as pages of columns, for `as_rows`. part: yield only the records of that part."""
    for some in batches(path, ROWS_A_LOOK, OF_ROW):
        yield part.only(some) if part else some


def as_rows(part: pa.RecordBatch, now: str) -> list[AcceptedRow]:
    new = map(repeat, (now, 1, False, False, False, "", None))
    return [*map(AcceptedRow._make, zip(*plain_columns(part, OF_ROW), *new, strict=False))]


def plain_columns(part: pa.RecordBatch, names: Sequence[str]) -> list[list[Any]]:
    """Return columns as Python values, times as the ledger's text, which is much faster to make than datetimes."""
    columns = (part.column(name) for name in names)
    return [utc_texts(c) if pa.types.is_timestamp(c.type) else c.to_pylist() for c in columns]


def utc_texts(column: pa.Array) -> list[str | None]:
    """Return timestamps as the ledger's text of fixed width.

    The zone is left out while texts are made, and appended as `Z`: with the zone, they take ten times as long.
    """
    plain = pc.cast(column, pa.timestamp("us", "UTC")).view(pa.timestamp("us"))
    texts = pc.replace_substring(pc.cast(plain, pa.string()), " ", "T").to_pylist()
    return [text and f"{text}Z" for text in texts]  # for Arrow, "Z" would be a scalar, which loads pandas


def accepted_files(batch: Path) -> list[Path]:
    """Return the accepted files of a batch's runs, newest first, without files that were cut short."""
    files = (path for path in matching(batch, "run-*/accepted.parquet") if is_whole(path))
    return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)


def rows_in(paths: Iterable[Path], wanted: Mapping[str, str]) -> dict[str, AcceptedRow]:
    """Return rows by key, each from the first file with that key and a content hash that begins with the wanted one."""
    found: dict[str, AcceptedRow] = {}
    for path in paths:
        left = {key: content for key, content in wanted.items() if content and key not in found}
        keys = arrow.column([*left], pa.string())
        for page in batches(path, ROWS_A_LOOK, OF_ROW) if left else ():
            rows = as_rows(page.filter(pc.is_in(page.column("key"), keys)), "")
            found |= {row.key: row for row in rows if row.content_hash.startswith(left[row.key])}
    return found
