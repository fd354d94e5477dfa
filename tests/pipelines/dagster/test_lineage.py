"""The lineage of published columns, as the SQL tells it."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.tables import key_of, table_specs
from pipelines.reports.lineage import column_lineage
from pipelines.reports.tables import report_tables

FRESH = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=3))
TABLES = {"a": ["id", "x", "y"], "b": ["id", "z"]}


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT x AS n, 1 AS one FROM a", {"n": ["a.x"]}),
        ("SELECT sum(x) FILTER (WHERE y > 0) AS n FROM a", {"n": ["a.x", "a.y"]}),
        ("SELECT a.id, b.z + a.x AS n FROM a JOIN b USING (id)", {"id": ["a.id"], "n": ["a.x", "b.z"]}),
        ("SELECT id, z FROM a JOIN b USING (id)", {"id": ["a.id", "b.id"], "z": ["b.z"]}),
        ("SELECT q.x, z FROM a AS q LEFT JOIN b ON q.id = b.id", {"x": ["a.x"], "z": ["b.z"]}),
        ("WITH c AS (SELECT x + y AS s FROM a) SELECT s * 2 AS n FROM c", {"n": ["a.x", "a.y"]}),
        ("WITH c AS (FROM a), d AS (SELECT * EXCLUDE (y) FROM c) SELECT * FROM d", {"id": ["a.id"], "x": ["a.x"]}),
        ("SELECT n FROM (SELECT x AS n FROM a) AS s", {"n": ["a.x"]}),
        ("SELECT id, x AS n FROM a UNION ALL SELECT id, z FROM b", {"id": ["a.id", "b.id"], "n": ["a.x", "b.z"]}),
        ("SELECT x FROM a UNION ALL BY NAME SELECT z, id AS x FROM b", {"x": ["a.x", "b.id"], "z": ["b.z"]}),
        ("SELECT (SELECT max(z) FROM b) AS n, x FROM a", {"n": ["b.z"], "x": ["a.x"]}),
        ("SELECT x, other FROM a, staged", {"x": ["a.x"]}),
        ("SELECT row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a", {"n": ["a.x", "a.y"]}),
        ("SELECT list_transform([1], lambda each: each + x) AS n FROM a", {"n": ["a.x"]}),
        ("SELECT 1 AS one", {}),
        ("this is no SQL", {}),
    ],
)
def test_the_lineage_of_a_column_names_its_source_columns(
    db: duckdb.DuckDBPyConnection, select: str, expected: dict[str, list[str]]
) -> None:
    found = column_lineage(db, select, TABLES)
    assert {name: [f"{table}.{column}" for table, column in drawn] for name, drawn in found.items()} == expected


def test_lineage_names_columns_of_the_inputs_that_a_table_declares(db: duckdb.DuckDBPyConnection) -> None:
    tables = report_tables()
    published = {table.name: [column.name for column in table.columns] for table in tables}
    told = 0
    for table in tables:
        if table.view:
            continue
        for column, drawn in column_lineage(db, table.select, published).items():
            assert column in published[table.name], table.name
            for other, source in drawn:
                assert other in table.inputs, (table.name, column)
                assert source in published[other], (table.name, column)
                told += 1
    assert told > 100
    [reconciled] = [table for table in tables if table.name == "payment_reconciliation"]
    assert column_lineage(db, reconciled.select, published)["created"] == [("payment", "amount"), ("payment", "fate")]


def test_assets_of_tables_show_their_lineage() -> None:
    tables = report_tables()
    spec = next(
        spec for spec in table_specs(ONE_HOME, tables, [], FRESH) if spec.key.path[-1] == "payment_reconciliation"
    )
    lineage = spec.metadata["dagster/column_lineage"]
    payment = next(table for table in tables if table.name == "payment")
    assert [(dep.asset_key, dep.column_name) for dep in lineage.deps_by_column["received"]] == [
        (key_of(ONE_HOME, payment), "amount")
    ]


def test_the_tables_of_a_second_home_are_not_read_by_their_sql_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a third of a second: half of what it takes to load the definitions of a home."""
    first = table_specs(ONE_HOME, report_tables(), [], FRESH)

    def never(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr("pipelines.dagster.tables.column_lineage", never)
    monkeypatch.setattr("pipelines.reports.views.definition.view_of", never)
    assert table_specs(ONE_HOME, report_tables(), [], FRESH) == first


def test_a_view_that_changed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "views" / "own_tasks.view.json"
    file.parent.mkdir()
    for name in ("id", "key"):
        column = {"name": name, "path": "id", "type": "id"}
        view = {"resource": "Task", "name": "own_tasks", "select": [{"column": [column]}]}
        file.write_text(json.dumps(view), encoding="utf-8")
        [own] = [table for table in report_tables(tmp_path) if table.name == "own_tasks"]
        assert [column.name for column in own.columns] == [name]
