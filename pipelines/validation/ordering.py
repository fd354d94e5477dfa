"""Rows of a large file in another order: those that will stand near each other are put together first, then sorted.

They wait in a file beside, and some megabytes are held at a time, however many there are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.home import arrow, spill

BYTES_AT_ONCE = 2 << 20
MOST_STRETCHES = 512
"""Beyond, stretches are longer: each is written in pieces, and their number would grow with the square of the file."""
ROWS_LOOKED_AT = 50
"""For each bound between two stretches: a tenth more or less comes into one of them than into another."""
ROWS_A_LOOK = 50_000
BY = ["at", "line"]
Pair = tuple[int, int]
Numbers = NDArray[np.int64]


def in_order(file: Path, rows: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield rows by `at`, those without one last, and by line, at most so many at a time.

    file: the Parquet file that the rows are from; the one beside it, where they wait, is left there.
    """
    bounds = _bounds(file)
    pieces: list[list[Pair]] = [[] for _ in range(len(bounds) + 1)]
    with file.with_name(f"{file.name}.order").open("w+b") as out:
        for some in _some_together(rows):
            for of_stretch, part in zip(pieces, _divided(_sorted(some), bounds), strict=True):
                if part.num_rows:
                    data = part.serialize()
                    of_stretch.append((out.tell(), data.size))
                    out.write(data)
                    schema = part.schema
        for of_stretch in filter(None, pieces):
            yield from _slices(_sorted(pa.concat_batches([_read(out, piece, schema) for piece in of_stretch])), most)


def _bounds(file: Path) -> list[Pair]:
    """Return the pairs of `at` and line that divide a file into stretches of about equal size, by rows at random."""
    about = pq.read_metadata(file)
    size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    stretches = min(1 + size // BYTES_AT_ONCE, MOST_STRETCHES)
    if stretches == 1:
        return []
    places = np.sort(np.random.default_rng(0).integers(0, about.num_rows, stretches * ROWS_LOOKED_AT))
    found, begin = list[tuple[Numbers, Numbers]](), 0
    for batch in spill.batches(file, ROWS_A_LOOK, BY):
        here = places[np.searchsorted(places, begin) : np.searchsorted(places, begin + batch.num_rows)] - begin
        at, line = _numbers(batch)
        found.append((at[here], line[here]))
        begin += batch.num_rows
    at, line = (np.concatenate(each) for each in zip(*found, strict=True))
    by = np.lexsort((line, at))[ROWS_LOOKED_AT::ROWS_LOOKED_AT]
    return [*zip(at[by].tolist(), line[by].tolist(), strict=True)]


def _some_together(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of some megabytes."""
    held, size = list[pa.RecordBatch](), 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= BYTES_AT_ONCE:
            together, held, size = pa.concat_batches(held), [], 0
            yield together
    if held:
        yield pa.concat_batches(held)


def _sorted(batch: pa.RecordBatch) -> pa.RecordBatch:
    at, line = _numbers(batch)
    order = np.lexsort((line, at))
    return batch.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))


def _divided(batch: pa.RecordBatch, bounds: Sequence[Pair]) -> Iterator[pa.RecordBatch]:
    """Yield the part of a sorted batch before each bound, and the rest."""
    at, line = _numbers(batch)
    begin = 0
    for its_at, its_line in bounds:
        first, behind = np.searchsorted(at, its_at), np.searchsorted(at, its_at, "right")
        end = int(first + np.searchsorted(line[first:behind], its_line))
        yield batch.slice(begin, end - begin)
        begin = end
    yield batch.slice(begin)


def _slices(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, most) for start in range(0, batch.num_rows, most))


def _numbers(batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
    """Return `at` and line of some rows; those without `at` have the last one that there is."""
    last = arrow.column([np.iinfo(np.int64).max], pa.int64())[0]  # from a plain number Arrow would load pandas for it
    return _plain(pc.fill_null(batch.column("at"), last)), _plain(batch.column("line"))


def _plain(numbers: pa.Array) -> Numbers:
    """Return a column without nulls. Arrow's own way to do so loads pandas."""
    return np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset : numbers.offset + len(numbers)]


def _read(file: BinaryIO, piece: Pair, schema: pa.Schema) -> pa.RecordBatch:
    place, size = piece
    file.seek(place)
    return pa.ipc.read_record_batch(pa.py_buffer(file.read(size)), schema)
