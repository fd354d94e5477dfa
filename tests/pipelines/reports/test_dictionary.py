"""The dictionary for programs says of every published table and column just what its comment says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.reports.tables import report_tables
from tests.support.publishing import TARGET, World, all_comments, import_payments

Comments = dict[str, tuple[str, dict[str, str]]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("home"))
    import_payments(made)
    made.questionnaires = [{"resourceType": "Questionnaire", "id": "q", "name": 'It\'s "odd": #1', "status": "active"}]
    with all_comments():
        made.publish()
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def said(world: World) -> Comments:
    """The comments of the DuckDB file: of each table, and of its columns."""
    columns: dict[str, dict[str, str]] = {}
    for table, column, comment in world.rows("SELECT table_name, column_name, comment FROM duckdb_columns()"):
        columns.setdefault(table, {})[column] = comment
    tables = world.rows("SELECT table_name, comment FROM duckdb_tables()")
    return {table: (comment, columns[table]) for table, comment in tables}


def published(world: World) -> Path:
    return world.home / "published"


def test_the_data_package_describes_every_parquet_file(world: World, said: Comments) -> None:
    """REPORT-03"""
    package = json.loads((published(world) / "datapackage.json").read_text())
    resources: list[dict[str, Any]] = package["resources"]
    assert {
        each["name"]: (each["description"], {f["name"]: f["description"] for f in each["schema"]["fields"]})
        for each in resources
    } == said
    for each in resources:
        assert pq.read_schema(published(world) / each["path"]).names == [f["name"] for f in each["schema"]["fields"]]
    names = {each["name"]: {f["name"] for f in each["schema"]["fields"]} for each in resources}
    for each in resources:
        for foreign in each["schema"].get("foreignKeys", ()):
            assert set(foreign["fields"]) <= names[each["name"]]
            assert set(foreign["reference"]["fields"]) <= names[foreign["reference"]["resource"]]
    by_name = {each["name"]: each["schema"] for each in resources}
    assert by_name["reject"]["uniqueKeys"] == [["reject_id"]]
    types = {field["name"]: field["type"] for field in by_name["payment"]["fields"]}
    assert (types["amount"], types["paid_on"], types["line"], types["received_at"]) == (
        *("number", "date", "integer", "datetime"),
    )


def test_the_dbt_source_describes_every_table(world: World, said: Comments) -> None:
    """REPORT-03"""
    [source] = yaml.safe_load((published(world) / "sources.yml").read_text())["sources"]
    assert (source["name"], source["database"], source["schema"]) == ("chartferry", "reports", "main")
    assert {
        table["name"]: (table["description"], {c["name"]: c["description"] for c in table["columns"]})
        for table in source["tables"]
    } == said
    [batch] = [c for t in source["tables"] if t["name"] == "reject" for c in t["columns"] if c["name"] == "batch_id"]
    [relationship] = batch["data_tests"]
    named = {"to": "source('chartferry', 'import_batch')", "field": "batch_id"}
    assert relationship == {"relationships": {"arguments": named}}


def test_parquet_files_carry_the_comments(world: World, said: Comments) -> None:
    """REPORT-03"""
    for name, (comment, columns) in said.items():
        told = pq.read_metadata(published(world) / "parquet" / f"{name}.parquet")
        kept = {k.decode(): v.decode() for k, v in (told.metadata or {}).items()}
        expected = {"comment": comment} | {f"comment.{column}": text for column, text in columns.items()}
        assert {key: text for key, text in kept.items() if key.startswith("comment")} == expected
        assert [(told.num_rows,)] == world.rows(f'SELECT count(*) FROM "{name}"')


def test_the_dictionary_is_read_only_and_names_no_target(world: World) -> None:
    for name in ("datapackage.json", "sources.yml"):
        path = published(world) / name
        assert path.stat().st_mode & 0o777 == 0o444
        assert TARGET not in path.read_text()
    assert {table.name for table in report_tables()} <= {path.stem for path in published(world).glob("parquet/*")}
