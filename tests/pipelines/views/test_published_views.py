"""ViewDefinitions become published tables; a bad one leaves the last publication as it is."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from pipelines.definitions import build_definitions
from pipelines.reports.changes import sweep_changes
from pipelines.reports.publish import PublicationError
from pipelines.reports.tables import readable_tables, report_tables, sql_folder
from pipelines.reports.views.definition import columns_of
from tests.support.publishing import TARGET, Target, World, report

ID = {"name": "report_id", "path": "id", "type": "id", "description": "Id of the report."}
TEXT = {"name": "text", "path": "code.text", "type": "string"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    (made.home / "views").mkdir()
    yield made
    made.ledger.close()


def put(world: World, *columns: dict[str, Any], file: str = "mine", **more: Any) -> Path:
    path = world.home / "views" / f"{file}.view.json"
    view = {"resource": "DiagnosticReport", "name": file, "description": "Mine.", "select": [{"column": columns}]}
    path.write_text(json.dumps(view | more))
    return path


def test_a_view_of_the_home_becomes_a_table_with_comments_a_parquet_file_and_an_asset(world: World) -> None:
    """VIEW-02"""
    put(world, {**ID, "tag": [{"name": "chartferry/key", "value": "true"}]}, TEXT)
    done = world.publish()
    assert done.rows["mine"] == 6
    assert world.rows("FROM mine")[0] == ("r1", "Complete blood count")
    assert world.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'mine'") == [("Mine.",)]
    assert world.rows("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'mine'") == [
        ("report_id", "Id of the report."),
        ("text", "The value of `code.text`."),
    ]
    assert duckdb.read_parquet(str(done.path.parent / "parquet" / "mine.parquet")).shape == (6, 2)
    graph = build_definitions({"CHARTFERRY_HOME": str(world.home)}).resolve_asset_graph()
    asset = graph.get(dg.AssetKey(["reports", "mine"]))
    assert asset.parent_keys == {dg.AssetKey(["reports", "diagnostic_report_sweep"])}
    assert asset.description is not None
    assert asset.description.startswith("Mine.\n\n```json\n")


def test_the_views_that_come_with_it_hold_what_the_reports_say(world: World) -> None:
    """VIEW-02"""
    world.reports.append(report("r7", effectiveDateTime="2026-02", code={"text": "Month"}))
    world.reports.append(report("r8", effectiveDateTime="9999-12-31"))
    done = world.publish()
    assert {name for name in done.rows if (sql_folder() / "views" / f"{name}.view.json").exists()} == {
        "diagnostic_report_coding",
        "diagnostic_report_document",
        "diagnostic_report_period",
    }
    assert world.rows("FROM diagnostic_report_document") == [
        ("r1", 0, "text/plain", "DiagnosticReport/r1/files/presentedForm/0")
    ]
    coded = "SELECT element, position, code FROM diagnostic_report_coding WHERE report_id = 'r1' ORDER BY ALL"
    assert world.rows(coded) == [
        ("category", 0, "LAB"), ("category", 1, "X"), ("category", 2, "LP29684-5"),
        ("code", 0, "58410-2"), ("code", 1, "CBC"),
    ]  # fmt: skip
    assert world.rows("SELECT count(*) FROM diagnostic_report_coding") == [
        world.rows("SELECT (SELECT count(*) FROM diagnostic_report_category) + count(*) FROM diagnostic_report_code")[0]
    ]
    period = "SELECT effective, earliest_at, latest_at FROM diagnostic_report_period WHERE report_id = "
    assert world.rows(period + "'r7'") == [
        ("2026-02", datetime(2026, 1, 31, 10, tzinfo=UTC), datetime(2026, 3, 1, 11, 59, 59, 999000, tzinfo=UTC))
    ]
    assert world.rows(period + "'r8'") == [("9999-12-31", datetime(9999, 12, 30, 10, tzinfo=UTC), None)]


def test_the_views_that_come_with_it_describe_every_column() -> None:
    """VIEW-02"""
    views = [table.view for table in report_tables() if table.view]
    assert all(column.description for view in views for column in columns_of(view.select))
    assert all(view.description for view in views)


@pytest.mark.parametrize("kind", ["PaymentNotice", "QuestionnaireResponse", "Task"])
def test_a_view_is_published_of_what_others_write_too(world: World, kind: str) -> None:
    """VIEW-02: what is gone is left out, and a type that was never read gives a table without rows."""
    put(world, ID, resource=kind)
    world.publish()
    assert world.rows("FROM mine") == []
    for names in ("ab", "bc"):
        there = Target([{"resourceType": kind, "id": name} for name in names])
        sweep_changes(there, world.home, TARGET, kind, clock=world.clock)
        world.time += timedelta(days=1)
    world.publish()
    assert world.rows("FROM mine") == [("b",), ("c",)]


def test_a_view_is_published_of_questionnaires_and_results(world: World) -> None:
    """VIEW-02"""
    put(world, ID, resource="Questionnaire")
    put(world, ID, file="results", resource="Observation")
    world.reports = [report("r1", result=[{"reference": "Observation/o1"}])]
    world.results = [{"resourceType": "Observation", "id": "o1"}]
    world.questionnaires = [{"resourceType": "Questionnaire", "id": "q1", "status": "active"}]
    world.publish()
    assert (world.rows("FROM mine"), world.rows("FROM results")) == ([("q1",)], [("o1",)])


DOUBLE = {"select": [{"column": [ID, {**TEXT, "name": "report_id"}]}]}
AT = "mine.view.json: select[0].column[1]"


MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"path": "code."}, {}, f"{AT}.path: the expression ends early"),
    (
        {"path": "code.count()"},
        {},
        f"{AT}.path `code.count()`: the function `count` is outside the profile; allowed",
    ),
    ({"type": None}, {}, f"{AT}: a published column declares its `type`"),
    ({}, DOUBLE, f"{AT}: the column `report_id` is there already"),
    ({}, {"resource": "Nothing"}, "mine.view.json: resource: `Nothing` is not a resource of FHIR R4"),
    ({}, {"resource": "Claim"}, "mine.view.json: resource: views are published of DiagnosticReport, Observation, Pay"),
    ({}, {"name": "other"}, "mine.view.json: name: must be that of the file"),
    ({"path": "category.coding.code"}, {}, f"{AT}: a path gives more than one value where one is allowed"),
    ({"tag": [{"name": "chartferry/references", "value": 'x"'}]}, {}, f"{AT}.tag: chartferry/references must be"),
    ({"tag": [{"name": "chartferry/references", "value": "nothing"}]}, {}, "mine.view.json: its key or references"),
    ({"tag": [{"name": "chartferry/key", "value": "true"}]}, {}, "these are not true: mine has one row per"),
]


def test_a_bad_view_leaves_the_last_publication_as_it_is(world: World) -> None:
    """VIEW-02: the message names the file and the place, and holds no data."""
    path = put(world, ID, TEXT)
    before = world.publish().path.stat()
    for column, more, said in MISTAKES:
        put(world, ID, {**TEXT, **column}, **more)
        with pytest.raises(PublicationError) as told:
            world.publish()
        assert said in str(told.value)
        assert len(str(told.value).splitlines()) == 1
        assert "LAB" not in str(told.value)
        assert (world.home / "published" / "reports.duckdb").stat() == before
    path.unlink()
    assert "mine" not in world.publish().rows


def test_a_view_with_the_name_of_a_table_is_told_and_the_other_assets_stay(world: World) -> None:
    """VIEW-02"""
    put(world, ID, file="diagnostic_report")
    said = "diagnostic_report.view.json: the table `diagnostic_report` is declared by diagnostic_report.sql already"
    with pytest.raises(PublicationError, match=said):
        world.publish()
    assert {table.name for table in readable_tables(world.home)} == {table.name for table in report_tables()}
