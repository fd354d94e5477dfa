"""Rewrite each column for a pseudonymous publication, by the kind that its declaration gives it.

Ids become keyed pseudonyms, the same in every table. Each patient's days are moved back by a number of whole weeks of
that patient, and lose their time of day. Text, names, and columns about files and the import's work are left out. So
are small cells of aggregates, and traits that few patients share.

A row of an aggregate is small if it counts fewer than a given number of people or records. A reader may know a total
over any of the columns that describe a row. If just one row of a total is left out, its count follows from the others.
So the smallest of the other rows is left out too. The step is also taken if the rows left out count too few together.
It is repeated until every total is safe.
"""

import hmac
import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb

from pipelines.home.files import made_once
from pipelines.reports.tables import INTERNAL, RESTING, TERM, BrokenTable, ColumnOf, ReportTable


def left_out(cells: Sequence[tuple[Hashable, ...]], sizes: Sequence[int], smallest: int) -> set[int]:
    """Return the places of the rows to leave out.

    Args:
        cells: For each row, the values that describe it.
        sizes: For each row, its count.
        smallest: The least count that is shown.
    """
    return protect(cells, sizes, {row for row, size in enumerate(sizes) if size < smallest}, smallest)


def protect(cells: Sequence[tuple[Hashable, ...]], sizes: Sequence[int], small: set[int], smallest: int) -> set[int]:
    """Return `small` with the rows that must be left out besides."""
    totals = _totals(cells)
    of_row = defaultdict[int, list[int]](list)
    for number, rows in enumerate(totals):
        rows.sort(key=lambda row: (sizes[row], row), reverse=True)  # the smallest is last
        for row in rows:
            of_row[row].append(number)
    out, hidden = set(small), [[row for row in rows if row in small] for rows in totals]
    waiting = deque(number for number, rows in enumerate(hidden) if rows)
    while waiting:
        number = waiting.popleft()
        rows = totals[number]
        while len(hidden[number]) == 1 or sum(sizes[row] for row in hidden[number]) < smallest:
            while rows and rows[-1] in out:
                rows.pop()
            if not rows:
                break
            row = rows.pop()
            out.add(row)
            for other in of_row[row]:
                hidden[other].append(row)
                waiting.append(other)
    return out


def _totals(cells: Sequence[tuple[Hashable, ...]]) -> list[list[int]]:
    """Return the rows of every total: rows that agree in some of the values, or in none."""
    if not cells:
        return []
    found = list[list[int]]()
    width = len(cells[0])
    for kept in (places for count in range(width) for places in combinations(range(width), count)):
        rows = defaultdict[tuple[Hashable, ...], list[int]](list)
        for row, cell in enumerate(cells):
            rows[tuple(cell[place] for place in kept)].append(row)
        found += rows.values()
    return found


KEY = "pseudonym.key"
"""The home's key file. Another key gives other pseudonyms and other shifts of days."""
SMALLEST = 10
"""The least number of people or records that a row of an aggregate may count."""
WEEKS = 104
"""The greatest number of weeks that days are moved back; the least is one."""
HIDDEN = ("text", INTERNAL)
TIMES = ("DATE", "TIMESTAMPTZ")
IDS = ("patient", "key")
NUMBERS = ("hours", "count", "part")

NUMBER = re.compile(r"(INTEGER|BIGINT|DOUBLE|DECIMAL\(.*\))")

# Names of the session begin with `_`, since no table and no column of a view has such a name. The key is hashed
# before and after the id: without the key nobody can guess an id, or extend a hash.
MACROS = (
    """CREATE TEMP MACRO keyed(what, id) AS sha256((SELECT value FROM _pseudonym_key)
        || sha256((SELECT value FROM _pseudonym_key) || what || ' ' || id))""",
    "CREATE TEMP MACRO pseudonym(id) AS left(keyed('id', id), 32)",
    f"""CREATE TEMP MACRO shift_of(patient) AS
        (7 * (1 + ('0x' || left(keyed('shift', patient), 8))::UBIGINT % {WEEKS}))::INTEGER""",
)


STUDY = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Study:
    """The recipient of pseudonymous tables.

    name: empty for the home's own tables; else the name of the study, which matches `STUDY`. smallest: the least number
    of people or records that a row of an aggregate may count.
    """

    name: str = ""
    smallest: int = SMALLEST


def key_of(home: Path, study: str = "") -> str:
    """Return the key of a study, derived from the home's key, which the first pseudonymous publication makes.

    Tables of two studies cannot be linked: neither pseudonyms nor shifts agree.
    """
    key = made_once(home / KEY, 32)
    return hmac.digest(key.encode(), f"study {study}".encode(), "sha256").hex() if study else key


def set_key(db: duckdb.DuckDBPyConnection, key: str) -> None:
    """Make the macros and the key table of a session. They are temporary, so that no file holds the key."""
    db.execute("CREATE TEMP TABLE _pseudonym_key AS SELECT ?::VARCHAR AS value", [key])
    for macro in MACROS:
        db.execute(macro)


def shown_tables(tables: Sequence[ReportTable]) -> list[ReportTable]:
    """Return the declarations of the pseudonymous tables, with the columns that stay. Raises `BrokenTable`.

    Remarks are dropped, since they may count few people, and so are times of reading.
    """
    left = [found for table in tables if (found := _shown(table)).columns]
    names = {table.name for table in left}
    return [
        replace(table, references=tuple(each for each in table.references if each[1] in names), as_of="", remarks=())
        for table in left
    ]


def _shown(table: ReportTable) -> ReportTable:
    columns = tuple(column for column in table.columns if column.kind not in HIDDEN)
    names = {column.name for column in columns}
    terms = {column.name for column in columns if column.kind == TERM}
    kinds = {column.kind for column in columns}
    for column in columns:
        if lacks := next(_lacking(column, kinds), None):
            raise BrokenTable(f"{table.file}: the column {column.name} is of the kind {column.kind}: {lacks}")
    return replace(
        table,
        columns=columns,
        key=table.key if names.issuperset(table.key) and not terms.intersection(table.key) else (),
        references=tuple(each for each in table.references if each[0] in names),
    )


def _lacking(column: ColumnOf, kinds: set[str]) -> Iterator[str]:
    """Yield the requirements of the column's kind that it does not meet. kinds: of all columns of its table."""
    if column.kind == "time" and (column.type not in TIMES or "patient" not in kinds):
        yield f"it has to be a {' or '.join(TIMES)}, in a table with a column of the kind patient"
    if column.kind in NUMBERS and not NUMBER.fullmatch(column.type):
        yield "it has to be a number"
    if column.kind in IDS and column.type.endswith("[]"):
        yield "it has to be one id"
    if column.kind == "quasi" and ("patient" not in kinds or "count" in kinds):
        yield "it has to be in a table with a column of the kind patient and none of the kind count"
    if column.kind in RESTING and "count" in kinds and not column.whole:
        yield (
            "in a table with a column of the kind count it has to name the column that counts whom it rests on:"
            f" `{column.kind} of ...`"
        )


def copy(db: duckdb.DuckDBPyConnection, table: ReportTable, source: str, smallest: int) -> None:
    """Make a table of the publication from the table in the database `source`."""
    there = f'{source}.main."{table.name}"'
    if any(column.kind == "count" for column in table.columns):
        _aggregate(db, table, there, smallest)
        return
    patient = table.patient
    taken = ", ".join(f'{_value(column, patient)} AS "{column.name}"' for column in table.columns)
    quasi = [column.name for column in table.columns if column.kind == "quasi"]
    if quasi:
        _hide_traits(db, there, patient, quasi, smallest)
        there = f'{there} LEFT JOIN _shared USING ("{patient}")'
    # Sorted by pseudonym: the order of the source's rows may be that of a file.
    db.execute(f'CREATE TABLE main."{table.name}" AS SELECT * FROM (SELECT {taken} FROM {there}) ORDER BY ALL')


def _value(column: ColumnOf, patient: str) -> str:
    name = f'"{column.name}"'
    if column.kind == TERM and column.type.endswith("[]"):
        return f"shown_among({name})"
    if column.kind == TERM:
        return f"shown_of({_quoted(column.whole)}, {name})"
    if made := MADE.get(column.kind):
        return made(name, patient, column.type)
    return name


def _quoted(name: str) -> str:
    return f'"{name}"' if name else "NULL"


def _moved(name: str, patient: str, kind: str) -> str:
    return f'({name}::DATE - shift_of("{patient}"))::{kind}'


MADE: dict[str, Callable[[str, str, str], str]] = {
    "patient": lambda name, *_: f"pseudonym({name})",
    "key": lambda name, *_: f"pseudonym({name})",
    "time": _moved,
    "hours": lambda name, *_: f"round({name})",
    "quasi": lambda name, *_: f"CASE WHEN _shared._is_shown THEN {name} END",
}
"""The SQL value by kind, from the names of the column and the patient column, and the type. Other kinds stay as they
are.
"""


def _hide_traits(db: duckdb.DuckDBPyConnection, there: str, patient: str, quasi: Sequence[str], smallest: int) -> None:
    """Note in `_shared` the patients whose traits enough others share. If any patients are left out, they are enough as
    well.

    A patient's traits are the traits of all its rows together, since the pseudonym joins the rows.
    """
    named = ", ".join(f'"{name}"' for name in quasi)
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE _trait AS
        SELECT "{patient}", string_agg(one, ' ' ORDER BY one) AS traits
        FROM (SELECT DISTINCT "{patient}", to_json(row({named}))::VARCHAR AS one FROM {there})
        WHERE "{patient}" IS NOT NULL
        GROUP BY "{patient}" """
    )
    found = db.execute("SELECT traits, count(*) FROM _trait GROUP BY traits ORDER BY traits").fetchall()
    out = left_out([(place,) for place in range(len(found))], [patients for _, patients in found], smallest)
    seen = [traits for place, (traits, _) in enumerate(found) if place not in out]
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE _shared AS SELECT "{patient}", true AS _is_shown
        FROM _trait WHERE traits IN (SELECT unnest(?::VARCHAR[]))""",
        [seen],
    )


def _aggregate(db: duckdb.DuckDBPyConnection, table: ReportTable, there: str, smallest: int) -> None:
    """Make an aggregate without its small cells, and without parts that are small or leave little of their whole."""
    names = [column.name for column in table.columns]
    listed = ", ".join(_if_enough(column, smallest) for column in table.columns)
    rows = [list(row) for row in db.execute(f"SELECT {listed} FROM {there} ORDER BY ALL").fetchall()]
    places = {
        kind: [at for at, c in enumerate(table.columns) if c.kind == kind] for kind in ("count", "rate", "cell", "key")
    }
    cells = [tuple(row[at] for at in (*places["cell"], *places["key"])) for row in rows]
    out = left_out(cells, [min(row[at] or 0 for at in places["count"]) for row in rows], smallest)
    _hide_parts(table, rows, places["rate"], cells, out, smallest)
    taken = ", ".join(f'{_value(column, "")} AS "{column.name}"' for column in table.columns)
    db.execute(f"CREATE OR REPLACE TEMP TABLE _aggregate AS SELECT {listed} FROM {there} LIMIT 0")
    kept = [row for place, row in enumerate(rows) if place not in out]
    if kept:
        db.executemany(f"INSERT INTO _aggregate VALUES ({', '.join('?' for _ in names)})", kept)
    db.execute(f'CREATE TABLE main."{table.name}" AS SELECT * FROM (SELECT {taken} FROM _aggregate) ORDER BY ALL')


def _if_enough(column: ColumnOf, smallest: int) -> str:
    """Return the SQL of an aggregate's column; a figure that rests on few people or records is NULL."""
    if column.kind in RESTING:
        return f'CASE WHEN "{column.whole}" >= {smallest} THEN "{column.name}" END AS "{column.name}"'
    return f'"{column.name}"'


def _hide_parts(
    table: ReportTable,
    rows: Sequence[list[Any]],
    rates: Sequence[int],
    cells: Sequence[tuple[Hashable, ...]],
    out: set[int],
    smallest: int,
) -> None:
    """Empty the parts that are small, that leave little of their whole, or whose whole is empty. A part of 0 stays.

    The parts of a row that is left out count as hidden, so that nobody can compute them from a total. Raises
    `BrokenTable` for a part that exceeds its whole.
    """
    place = {column.name: at for at, column in enumerate(table.columns)}
    true = {
        column.name: [row[place[column.name]] or 0 for row in rows]
        for column in table.columns
        if column.kind in ("count", "part")
    }
    hidden: dict[str, set[int]] = {}
    for column in table.columns:
        if column.kind != "part":
            continue
        parts, wholes = true[column.name], true[column.whole]
        if not all(0 <= part <= whole for part, whole in zip(parts, wholes, strict=True)):
            raise BrokenTable(
                f"{table.file}: the column {column.name} is no part of {column.whole}: a row has more of it"
            )
        sizes = [min(part, whole - part) for part, whole in zip(parts, wholes, strict=True)]
        covered = out | hidden.get(column.whole, set())
        small = {row for row, size in enumerate(sizes) if 0 < size < smallest or (row in covered and parts[row])}
        hidden[column.name] = protect(cells, sizes, small, smallest) if small else set()
        for row in hidden[column.name]:
            for at in (place[column.name], *rates):
                rows[row][at] = None
