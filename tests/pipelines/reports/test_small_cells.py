"""Cells, parts and traits of pseudonymous tables that few patients share are left out or emptied."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import duckdb
import pytest

from pipelines.reports.pseudonymous import copy, left_out, set_key, shown_tables
from pipelines.reports.tables import BrokenTable, ColumnOf, ReportTable

BROKEN = ReportTable("t", "", (), (), (), (), "", "t.sql")
COLUMNS = (
    *(ColumnOf("unit", "VARCHAR", "", "cell"), ColumnOf("results", "BIGINT", "", "count")),
    *(ColumnOf("patients", "BIGINT", "", "count"), ColumnOf("judged", "BIGINT", "", "part", "results")),
    ColumnOf("abnormal", "BIGINT", "", "part", "judged"),
)


@pytest.fixture
def bench() -> Iterator[duckdb.DuckDBPyConnection]:
    """A session with a schema `there.main`, as the private tables are."""
    with duckdb.connect() as db:
        db.execute("ATTACH ':memory:' AS there")
        set_key(db, "00")
        yield db


def shown_of(db: duckdb.DuckDBPyConnection, columns: tuple[ColumnOf, ...], rows: list[tuple[Any, ...]]) -> Any:
    """The rows of a table as they are published pseudonymously."""
    declared = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    db.execute(f"CREATE OR REPLACE TABLE there.main.t ({declared})")
    db.executemany(f"INSERT INTO there.main.t VALUES ({', '.join('?' for _ in columns)})", rows)
    db.execute("DROP TABLE IF EXISTS main.t")
    copy(db, replace(BROKEN, columns=columns), "there", 10)
    return db.execute("FROM main.t ORDER BY ALL").fetchall()


def test_a_part_is_hidden_if_it_or_the_rest_of_its_declared_whole_is_small(bench: duckdb.DuckDBPyConnection) -> None:
    """REPORT-30: results may be many more than their patients, and few of those judged may be normal."""
    rows = [
        ("a", 500, 12, 200, 100),
        ("b", 500, 12, 200, 3),  # few are abnormal
        ("c", 500, 12, 200, 198),  # few are normal
        ("d", 500, 12, 493, 100),  # few are not judged
        ("e", 500, 12, 200, 0),
        ("f", 500, 12, 4, 4),  # few are judged, all of them abnormal
        ("g", 500, 12, 0, 0),
    ]
    assert shown_of(bench, COLUMNS, rows) == [
        ("a", 500, 12, 200, 100),
        ("b", 500, 12, 200, None),
        ("c", 500, 12, 200, None),
        ("d", 500, 12, None, None),
        ("e", 500, 12, 200, 0),
        ("f", 500, 12, None, None),
        ("g", 500, 12, 0, 0),
    ]


def test_parts_of_a_row_that_is_left_out_follow_from_no_total(bench: duckdb.DuckDBPyConnection) -> None:
    """REPORT-30: all five results of unit x are judged: the total of those judged, less the others, would say so."""
    rows = [("x", 5, 5, 5, 0), ("y", 90, 30, 40, 0), ("z", 900, 300, 400, 0)]
    assert shown_of(bench, COLUMNS, rows) == [("z", 900, 300, 400, 0)]


@pytest.mark.parametrize(("judged", "abnormal"), [(501, 0), (100, 101), (-1, 0)])
def test_a_declared_part_that_exceeds_its_whole_is_an_error(
    bench: duckdb.DuckDBPyConnection, judged: int, abnormal: int
) -> None:
    """REPORT-30: a wrong declaration hides no small cell."""
    with pytest.raises(BrokenTable, match=r"^t.sql: the column (judged|abnormal) is no part of (results|judged): "):
        shown_of(bench, COLUMNS, [("a", 500, 12, judged, abnormal)])


RESTS = (*COLUMNS[:3], ColumnOf("valued", "BIGINT", ""), ColumnOf("p90", "DOUBLE", "", "value", "valued"))


def test_a_percentile_of_few_patients_is_empty(bench: duckdb.DuckDBPyConnection) -> None:
    """REPORT-30: however many results and patients the row counts; the number itself is internal."""
    rows = [("a", 500, 30, 9, 1.5), ("b", 500, 30, 10, 1.5), ("c", 500, 30, 0, None)]
    table = replace(BROKEN, columns=RESTS)
    bench.execute("CREATE TABLE there.main.t (unit VARCHAR, results INT, patients INT, valued INT, p90 DOUBLE)")
    bench.executemany("INSERT INTO there.main.t VALUES (?, ?, ?, ?, ?)", rows)
    [left] = shown_tables([table])
    copy(bench, left, "there", 10)
    assert bench.execute("FROM main.t ORDER BY ALL").fetchall() == [
        ("a", 500, 30, None),
        ("b", 500, 30, 1.5),
        ("c", 500, 30, None),
    ]
    bare = replace(table, columns=(*RESTS[:4], RESTS[4]._replace(whole="")))
    with pytest.raises(BrokenTable, match="the column p90 is of the kind value: in a table with a column"):
        shown_tables([bare])


TRAITS = (ColumnOf("who", "VARCHAR", "", "patient"), ColumnOf("sex", "VARCHAR", "", "quasi"))


def test_a_trait_is_shown_if_enough_patients_share_it_however_many_rows_they_have(
    bench: duckdb.DuckDBPyConnection,
) -> None:
    """REPORT-30: a patient with two traits could be recognised by the pair."""
    rows: list[tuple[Any, ...]] = [
        *((f"p{number}", "female") for number in range(20)),
        *(("rare", "other") for _ in range(30)),
    ]
    rows += [("p0", "male"), *((f"q{number}", "male") for number in range(15))]
    rows += [(None, "female")]
    found = shown_of(bench, TRAITS, rows)
    assert len(found) == len(rows)
    shown = [sex for _, sex in found if sex]
    assert (shown.count("female"), shown.count("male"), shown.count("other")) == (19, 0, 0)


@pytest.mark.parametrize("others", [(), (ColumnOf("who", "VARCHAR", "", "patient"), COLUMNS[1])])
def test_a_column_of_traits_needs_a_column_of_patients_in_its_table(others: tuple[ColumnOf, ...]) -> None:
    """REPORT-30"""
    with pytest.raises(BrokenTable, match="the column sex is of the kind quasi: it has to be in a table with a column"):
        shown_tables([replace(BROKEN, columns=(TRAITS[1], *others))])


def test_no_small_count_can_be_computed_from_totals_and_shown_rows() -> None:
    """REPORT-30: somebody who knows every total of a table, over whichever of its columns, learns of no small cell."""
    chance = random.Random(5)
    for _ in range(300):
        width, smallest = chance.randint(1, 3), chance.randint(2, 12)
        cells = sorted({tuple(chance.randint(0, 3) for _ in range(width)) for _ in range(chance.randint(1, 40))})
        sizes = [chance.choice((1, 2, 5, 11, 40)) for _ in cells]
        out = left_out(cells, sizes, smallest)
        assert all(size >= smallest for row, size in enumerate(sizes) if row not in out)
        for kept_places in (places for count in range(width) for places in combinations(range(width), count)):
            totals = defaultdict[tuple[int, ...], list[int]](list)
            for row, cell in enumerate(cells):
                totals[tuple(cell[place] for place in kept_places)].append(row)
            for rows in totals.values():
                hidden = [row for row in rows if row in out]
                seen = len(hidden) < len(rows)
                assert not hidden or not seen or (len(hidden) > 1 and sum(sizes[row] for row in hidden) >= smallest)
