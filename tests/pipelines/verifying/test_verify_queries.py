"""The queries of `verify` that are not asked where a table has no row: they would find nothing."""

import re
from collections.abc import Iterator

import duckdb
import pytest

from pipelines.verifying.staging import CONTENT, NUMBERS, OURS
from pipelines.verifying.target import THERE
from pipelines.verifying.verify import NEEDED, QUERIES

TABLES = {
    "all_ours": OURS,
    "ours": OURS,
    "sent": OURS,
    "former": f"{OURS} fate",
    "known": "resource_id",
    "there": THERE,
    "hidden": "id",
    "behind": "resource_id",
    "content": CONTENT,
    "own": "source",
    "difference": "kind batch_id line resource_id",
}
GIVEN = {"kind": "Task", "batch": "", "named": False, "behind": 0, "lost": False}


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        for table, columns in TABLES.items():
            names = columns.split()
            typed = (f"{name} {'BIGINT' if name in NUMBERS else 'TEXT'}" for name in names)
            db.execute(f"CREATE TABLE {table} ({', '.join(typed)})")
            for value in ("''", "'~'", "NULL"):  # DuckDB knows the least and the most of a column
                values = ("0" if name in NUMBERS else value for name in names)
                db.execute(f"INSERT INTO {table} VALUES ({', '.join(values)})")
        yield db


def has_no_row(db: duckdb.DuckDBPyConnection, query: str) -> bool:
    """True if a query has no row whatever its tables hold: DuckDB's plan of it reads none of them."""
    given = {name: value for name, value in GIVEN.items() if f"${name}" in query}
    plan = db.execute(f"EXPLAIN {query}", given).fetchall()[0][1]
    return "Empty Result" in plan and "Scan" not in plan


def without(query: str, needed: str) -> str:
    """A query with no row in what it needs, wherever it joins or reads that."""
    table = needed.split(maxsplit=1)[0]
    return re.sub(rf"\b(FROM|JOIN) {re.escape(needed)}(?![.\w])", rf"\1 (FROM {table} WHERE false) AS {table}", query)


@pytest.mark.parametrize("name", NEEDED)
def test_a_query_whose_needed_table_is_empty_finds_nothing(db: duckdb.DuckDBPyConnection, name: str) -> None:
    query = QUERIES[name]
    assert not has_no_row(db, query)
    assert has_no_row(db, without(query, NEEDED[name])), "it is to be asked always"


@pytest.mark.parametrize(("name", "table"), [("gone", "hidden"), ("gone", "there"), ("taken back", "former")])
def test_a_query_that_leaves_out_what_a_table_has_or_does_not_read_it_is_asked_always(
    db: duckdb.DuckDBPyConnection, name: str, table: str
) -> None:
    assert not has_no_row(db, without(QUERIES[name], table))
