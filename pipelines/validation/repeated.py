"""Keys that come more than once in a file, looked for by their hashes: most files have none, and few keys are held."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.home import arrow, spill

ROWS_A_LOOK = 20_000
HASHES_AT_ONCE = 1 << 20
ASKED = ["key", "line", "hash", "is_doubtful"]
REPEATED = pa.schema(
    {"key": pa.string(), "line": pa.int64(), "hash": pa.string(), "is_doubtful": pa.bool_(), "place": pa.int64()}
)
"""Rows whose keys may come more than once, with their places in the file."""
FIRST_LINES = """
    with keys as (select key, min(line) as first_line, min(hash) <> max(hash) as differs
        from read_parquet('{file}') where not is_doubtful group by key having count(*) > 1)
    select place, first_line, differs from read_parquet('{file}') join keys using (key) order by place"""
Hashes = NDArray[np.int64]


def first_lines(mapped: Path) -> Iterator[tuple[Any, ...]]:
    """Yield place, first line, and whether the rows differ, for the rows of each key that comes more than once.

    Files are written beside `mapped`, and left there. Doubtful rows make no key come once more.
    """
    hashes = mapped.with_name(f"{mapped.name}.hashes")
    rows = _write_hashes(mapped, hashes)
    some = _repeated(hashes, 1 + rows // HASHES_AT_ONCE)
    if not some.size:
        return
    repeated = mapped.with_name(f"{mapped.name}.repeated")
    with spill.Writer(repeated, REPEATED) as out:
        begin = 0
        for batch in spill.batches(mapped, ROWS_A_LOOK, ASKED):
            here = np.fromfile(hashes, np.int64, batch.num_rows, offset=begin * 8)
            may_be = np.isin(here, some, kind="sort")
            places = np.arange(begin, begin + batch.num_rows)
            begin += batch.num_rows
            if may_be.any():
                whole = pa.record_batch([*batch.select(ASKED).columns, _column(places)], schema=REPEATED)
                out.add_batch(whole.filter(arrow.column(may_be.tolist(), pa.bool_())))
    with spill.sorter(mapped.parent) as database:
        yield from spill.rows(database, FIRST_LINES.format(file=str(repeated).replace("'", "''")))


def _write_hashes(mapped: Path, to: Path) -> int:
    """Write the hash of each row's key, as this process makes it, to a file; return the number of rows.

    Rows without a key have hashes of their own, by their places.
    """
    rows = 0
    with to.open("wb") as out:
        for batch in spill.batches(mapped, ROWS_A_LOOK, ["key"]):
            keys = batch.column("key").to_pylist()
            if batch.column("key").null_count:
                keys = [rows + place if key is None else key for place, key in enumerate(keys)]
            np.fromiter(map(hash, keys), np.int64, len(keys)).tofile(out)
            rows += len(keys)
    return rows


def _repeated(hashes: Path, parts: int) -> Hashes:
    """Return the hashes that come more than once, sorted. They are read in so many passes, each of a part of them."""
    found = [np.empty(0, np.int64)]
    for part in range(parts):
        of_part = np.sort(np.concatenate([some[some % parts == part] for some in _read(hashes)] or found))
        found.append(np.unique(of_part[1:][of_part[1:] == of_part[:-1]]))
    return np.sort(np.concatenate(found))


def _read(hashes: Path) -> Iterator[Hashes]:
    with hashes.open("rb") as file:
        while (some := np.fromfile(file, np.int64, HASHES_AT_ONCE)).size:
            yield some


def _column(numbers: Hashes) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
