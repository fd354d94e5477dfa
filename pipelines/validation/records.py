"""The records of a chunk: the rows of each, its repeats, and the hash of its content.

Nothing is read here, so that a process that only checks chunks imports neither Parquet nor Arrow's functions.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

from pipelines.feeds.terms.columns import RecordKind
from pipelines.validation.content import sha


class MappedRow(NamedTuple):
    """A row of `MAPPED`, with the first line of its key, and True if the rows of that key differ.

    first_line: None for a key of an ungrouped kind that comes once. differs: set for ungrouped kinds.
    """

    line: int
    lines: int
    key: str | None
    record: str | None
    hash: str
    faults: str | None
    raw: str
    is_doubtful: bool
    first_line: int | None
    differs: bool | None


def records(chunk: pa.RecordBatch, kind: RecordKind) -> Iterator[list[MappedRow]]:
    """Return the records of a chunk, each as its rows."""
    rows = map(MappedRow._make, zip(*(column.to_pylist() for column in chunk.columns), strict=True))
    if not kind.grouped:
        return ([row] for row in rows)
    return (list(group) for _, group in groupby(rows, key=attrgetter("first_line")))


def repeated_parts(rows: list[MappedRow]) -> list[list[MappedRow]]:
    """Return the rows of a record, cut into equal parts if the file has the whole record several times."""
    if len(rows) == 1:
        return [rows]
    hashes = [row.hash for row in rows]
    if hashes.count(hashes[0]) == 1:
        return [rows]
    for size in range(1, len(rows) // 2 + 1):
        if len(rows) % size == 0 and hashes == hashes[:size] * (len(rows) // size):
            return [rows[start : start + size] for start in range(0, len(rows), size)]
    return [rows]


def content_of(rows: Sequence[MappedRow], kind: RecordKind) -> str:
    """Return the hash of a record's content."""
    return rows[0].hash if not kind.grouped else sha("".join(sorted(row.hash for row in rows)))
