"""`MAPPED` sorted and grouped: the rows of one record after another, in the order of sending."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.feeds.record import Kind
from pipelines.spill import BATCH, BATCH_SIZE
from pipelines.validation.aside import aside_of, restored


class Row(NamedTuple):
    """A row of `MAPPED`, and what is known of its key: the first line that has it, and whether its rows differ.

    first_line: None for a key of an ungrouped kind that comes once. differs: told of ungrouped kinds.
    """

    line: int
    lines: int
    key: str | None
    record: str | None
    hash: str
    faults: str | None
    raw: str
    first_line: int | None
    differs: bool | None


def _query(mapped: Path, kind: Kind) -> str:
    """The records in the order of sending; of a grouped kind the rows of a record together.

    Hashes are compared for keys that come more than once alone: held for every key, they would be most of the memory.
    """
    file = str(mapped).replace("'", "''")
    order = "first_line, line" if kind.grouped else '"at" nulls last, line' if kind.sort else "line"
    first = "coalesce(first_line, line) as first_line" if kind.grouped else "first_line"
    repeats = f"""
        select key, min(line) as first_line, min(hash) <> max(hash) as differs from '{file}'
        where key in (select key from '{file}' where key is not null group by key having count(*) > 1) group by key
    """
    every = f"select key, min(line) as first_line, false as differs from '{file}' where key is not null group by key"
    return f"""
        with keys as ({every if kind.grouped else repeats})
        select line, lines, key, record, hash, faults, raw, {first}, differs
        from '{file}' left join keys using (key) order by {order}
    """


def chunks(database: Any, mapped: Path, kind: Kind) -> Iterator[pa.RecordBatch]:
    """The rows some thousand at a time, or fewer long ones; the rows of a record in one chunk."""
    batches = iter(database.sql(_query(mapped, kind)).to_arrow_reader(BATCH))
    whole = restored(batches, aside_of(mapped), ("record", "raw"))
    parts = (part for batch in whole for part in _bounded(batch))
    return _whole_records(parts) if kind.grouped else parts


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of a bounded size."""
    rows = max(1, batch.num_rows * BATCH_SIZE // max(batch.nbytes, 1))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _whole_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut between records only."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        begins = batch.column("first_line")
        last = pc.index(begins, begins[-1]).as_py()
        if last or (held and held[0].column("first_line")[0] != begins[0]):
            held.append(batch.slice(0, last))
            yield pa.concat_batches(held)
            held = [batch.slice(last)]
        else:
            held.append(batch)
    if held:
        yield pa.concat_batches(held)


def records(chunk: pa.RecordBatch, kind: Kind) -> Iterator[list[Row]]:
    """The records of a chunk, each as its rows."""
    rows = map(Row._make, zip(*(column.to_pylist() for column in chunk.columns), strict=True))
    if not kind.grouped:
        return ([row] for row in rows)
    return (list(group) for _, group in groupby(rows, key=itemgetter(7)))


def repeated(rows: list[Row]) -> list[list[Row]]:
    """The rows of a record, cut into equal parts where the record stands in the file several times as a whole."""
    if len(rows) == 1:
        return [rows]
    hashes = [row.hash for row in rows]
    for size in range(1, len(rows) // 2 + 1):
        if len(rows) % size == 0 and hashes == hashes[:size] * (len(rows) // size):
            return [rows[start : start + size] for start in range(0, len(rows), size)]
    return [rows]
