"""Reading what the validate stage accepted, as the rows that a load sends."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.home import arrow
from pipelines.home.paths import matching
from pipelines.home.spill import batches, is_whole
from pipelines.loading.row import Row

ROWS_A_LOOK = 4_000
OF_ROW = "line lines key lane content_hash patient_id source_at amount_cents body".split()
TEXT = "text_hash"
ACCEPTED = [*OF_ROW, TEXT]
"""Files of older versions have no hash of texts."""


class Part(NamedTuple):
    """One of `of` parts. since: when the load began (UTC text), of a part that a worker has begun before.

    A record of this very row that has an outcome from then on got it in this load.
    """

    number: int
    of: int
    since: str = ""

    def has(self, lane: str) -> bool:
        """True if the rows of a lane are in this part: the high bits of its hash decide."""
        return crc32(lane.encode()) * self.of >> 32 == self.number

    def only(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of this part, which have a column `lane`."""
        lanes = rows.column("lane").dictionary_encode()
        here = [self.has(lane) for lane in lanes.dictionary.to_pylist()]
        return rows.filter(arrow.column(here, pa.bool_()).take(lanes.indices))


def accepted_rows(path: Path, now: str) -> Iterator[list[Row]]:
    """The rows of `accepted.parquet` as the validate stage ordered them, some at a time. `now`: UTC text."""
    for page in accepted_pages(path):
        yield as_rows(page, now)


def accepted_pages(path: Path, part: Part | None = None) -> Iterator[pa.RecordBatch]:
    """Yield accepted records as pages of columns, which `as_rows` makes rows. part: those of that part alone."""
    for some in batches(path, ROWS_A_LOOK, ACCEPTED):
        yield part.only(some) if part else some


def as_rows(part: pa.RecordBatch, now: str) -> list[Row]:
    texts = part.column(TEXT).to_pylist() if TEXT in part.schema.names else part.num_rows * [None]
    new = map(repeat, (now, 1, False, False, False, ""))
    return [*map(Row._make, zip(*plain_columns(part, OF_ROW), *new, texts, repeat(None)))]


def plain_columns(part: pa.RecordBatch, names: Sequence[str]) -> list[list[Any]]:
    """Columns as Python values; times as the ledger's text, which is also much sooner made than datetimes."""
    columns = (part.column(name) for name in names)
    return [utc_texts(c) if pa.types.is_timestamp(c.type) else c.to_pylist() for c in columns]


def utc_texts(column: pa.Array) -> list[str | None]:
    """Timestamps as the ledger's text of fixed width.

    The zone is left out while texts are made, and put behind them: with it, they take ten times as long.
    """
    plain = pc.cast(column, pa.timestamp("us", "UTC")).view(pa.timestamp("us"))
    texts = pc.replace_substring(pc.cast(plain, pa.string()), " ", "T").to_pylist()
    return [text and f"{text}Z" for text in texts]  # Arrow would make "Z" a scalar, for which it loads pandas


def accepted_files(batch: Path) -> list[Path]:
    """Return the accepted files of a batch's runs, the newest first, without files that were cut short."""
    files = (path for path in matching(batch, "run-*/accepted.parquet") if is_whole(path))
    return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)


def rows_in(paths: Iterable[Path], wanted: Mapping[str, str]) -> dict[str, Row]:
    """By key, the rows of these keys whose content hashes begin so, from the first file that has each."""
    found: dict[str, Row] = {}
    for path in paths:
        left = {key: content for key, content in wanted.items() if content and key not in found}
        keys = arrow.column([*left], pa.string())
        for page in batches(path, ROWS_A_LOOK, ACCEPTED) if left else ():
            rows = as_rows(page.filter(pc.is_in(page.column("key"), keys)), "")
            found |= {row.key: row for row in rows if row.content_hash.startswith(left[row.key])}
    return found
