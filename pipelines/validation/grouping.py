"""`MAPPED` sorted and grouped: the rows of one record after another, in the order of sending."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import spill
from pipelines.feeds.record import Kind


class Row(NamedTuple):
    """A row of `MAPPED`, and what is known of its key: the first line that has it, and whether its rows differ."""

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
    """The records in the order of sending; of a grouped kind the rows of a record together."""
    file = str(mapped).replace("'", "''")
    order = "first_line, line" if kind.grouped else '"at" nulls last, line' if kind.sort else "line"
    having = "" if kind.grouped else "having count(*) > 1"
    first = "coalesce(first_line, line) as first_line" if kind.grouped else "first_line"
    return f"""
        with keys as (
            select key, min(line) as first_line, min(hash) <> max(hash) as differs
            from '{file}' where key is not null group by key {having}
        )
        select line, lines, key, record, hash, faults, raw, {first}, differs
        from '{file}' left join keys using (key) order by {order}
    """


def records(database: Any, mapped: Path, kind: Kind) -> Iterator[list[Row]]:
    rows = map(Row._make, spill.rows(database, _query(mapped, kind)))
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
