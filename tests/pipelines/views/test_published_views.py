"""ViewDefinitions become published tables; an unusable one leaves the last publication as it is."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import duckdb
import pytest

from pipelines.definitions import build_definitions
from pipelines.reports import building, making
from pipelines.reports.changed_resources import sweep_changes
from pipelines.reports.publication import PublicationError
from pipelines.reports.tables import VIEWED, readable_tables, report_tables, why_not_published
from pipelines.reports.views.definition import columns_of
from tests.support.publishing import TARGET, Target, World, publish_only, report, unpublished

ID = {"name": "report_id", "path": "id", "type": "id", "description": "Id of the report."}
TEXT = {"name": "text", "path": "code.text", "type": "string"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A home without views of its own. The tables are its views, and of ours those that a test names."""
    publish_only(monkeypatch)
    with unpublished(tmp_path) as made:
        (made.home / "views").mkdir()
        yield made


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A home without views of its own, whose publications write files."""
    publish_only(monkeypatch)
    made = World(tmp_path)
    (made.home / "views").mkdir()
    yield made
    made.ledger.close()


def put(world: World, *columns: dict[str, Any], file: str = "mine", **more: Any) -> Path:
    path = world.home / "views" / f"{file}.view.json"
    view = {"resource": "DiagnosticReport", "name": file, "description": "Mine.", "select": [{"column": columns}]}
    path.write_text(json.dumps(view | more))
    return path


def test_a_view_of_the_home_becomes_a_table_with_comments_a_parquet_file_and_an_asset(whole: World) -> None:
    """VIEW-02"""
    put(whole, {**ID, "tag": [{"name": "chartferry/key", "value": "true"}]}, TEXT)
    done = whole.publish()
    assert done.rows["mine"] == 6
    assert whole.rows("FROM mine")[0] == ("r1", "Complete blood count")
    assert whole.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'mine'") == [("Mine.",)]
    assert whole.rows("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'mine'") == [
        ("report_id", "Id of the report."),
        ("text", "The value of `code.text`."),
    ]
    assert duckdb.read_parquet(str(done.path.parent / "parquet" / "mine.parquet")).shape == (6, 2)
    graph = build_definitions({"CHARTFERRY_HOME": str(whole.home)}).resolve_asset_graph()
    asset = graph.get(dg.AssetKey(["reports", "mine"]))
    assert asset.parent_keys == {dg.AssetKey(["reports", "diagnostic_report_sweep"])}
    assert asset.description is not None
    assert asset.description.startswith("Mine.\n\n```json\n")


def test_the_views_that_come_with_it_hold_what_the_reports_say(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """VIEW-02"""
    publish_only(monkeypatch, *OURS, "diagnostic_report_category", "diagnostic_report_code")
    world.reports.append(report("r7", effectiveDateTime="2026-02", code={"text": "Month"}))
    world.reports.append(report("r8", effectiveDateTime="9999-12-31"))
    world.publish()
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


OURS = {
    *("diagnostic_report_coding", "diagnostic_report_document", "diagnostic_report_period"),
    *("observation_coding", "observation_range", "payment_at_target", "task_at_target", "task_note"),
    *("question_code", "question_condition", "questionnaire_item", "questionnaire_response_item"),
}
ANNA = {"reference": "Practitioner/anna"}
TASK: dict[str, Any] = {
    "resourceType": "Task", "id": "t1", "status": "requested", "for": {"reference": "Patient/p1"}, "owner": ANNA,
    "authoredOn": "2026-02-01", "restriction": {"period": {"end": "2026-02-03T10:00:00Z"}}, "description": "CALL",
    "note": [
        {"text": "FIRST", "authorReference": ANNA, "time": "2026-02-01T09:00:00Z"},
        {"text": "SECOND", "authorString": "somebody"},
    ],
}  # fmt: skip
CHOICE: dict[str, Any] = {"system": "urn:s", "code": "yes"}
CODES = [CHOICE, {**CHOICE, "code": "other"}]
FORM: dict[str, Any] = {
    "resourceType": "Questionnaire", "id": "q1", "status": "active",
    "item": [
        {
            "linkId": "part", "type": "group",
            "item": [{"linkId": "a", "type": "choice", "required": True, "code": CODES}],
        },
        {
            "linkId": "b", "type": "text", "enableBehavior": "any",
            "enableWhen": [
                {"question": "a", "operator": "=", "answerCoding": CHOICE},
                {"question": "c", "operator": ">", "answerDecimal": 1.5},
            ],
        },
    ],
}  # fmt: skip
FILLED: dict[str, Any] = {
    "resourceType": "QuestionnaireResponse", "id": "a1", "status": "in-progress",
    "subject": {"reference": "Patient/p1"},
    "item": [
        {"linkId": "part", "item": [{"linkId": "a", "text": "ASKED", "answer": [{"valueCoding": CHOICE}]}]},
        {"linkId": "b", "answer": [{"valueString": "SAID"}, {"valueDate": "1970-01-01"}, {"valueInteger": 3}]},
    ],
}  # fmt: skip
PAID: dict[str, Any] = {
    "resourceType": "PaymentNotice", "id": "n1", "status": "active", "request": {"reference": "Patient/p1"},
    "created": "2026-02-01", "amount": {"value": 12.5, "currency": "USD"},
    "paymentStatus": {"coding": [{"code": "paid"}]},
}  # fmt: skip
MEASURED: dict[str, Any] = {
    "resourceType": "Observation", "id": "o1", "status": "final", "subject": {"reference": "Patient/p1"},
    "code": {"coding": CODES}, "interpretation": [{"coding": [{"code": "H"}]}],
    "referenceRange": [
        {"low": {"value": 1, "unit": "g"}, "high": {"value": 2.5, "unit": "g"}},
        {"text": "of CHILDREN", "high": {"value": 9}, "age": {"high": {"value": 12, "unit": "a"}}},
    ],
}  # fmt: skip


def show(world: World, *resources: dict[str, Any]) -> None:
    """Let the target have these resources, and publish."""
    results = [f"Observation/{each['id']}" for each in resources if each["resourceType"] == "Observation"]
    world.reports = [report("r1", result=[{"reference": each} for each in results])]
    of = {kind: [each for each in resources if each["resourceType"] == kind] for kind in VIEWED}
    world.questionnaires, world.results = of["Questionnaire"], of["Observation"]
    for kind in ("Task", "PaymentNotice", "QuestionnaireResponse"):
        sweep_changes(Target(of[kind]), world.home, TARGET, kind, clock=world.clock)
    world.publish()


def test_views_of_every_resource_come_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """VIEW-02: they hold no free text about people."""
    publish_only(monkeypatch, *OURS)
    show(world, TASK, FORM, FILLED, PAID, MEASURED)
    rows = {name: world.rows(f"FROM {name} ORDER BY ALL") for name in OURS}
    due, day = datetime(2026, 2, 3, 10, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    at_nine = datetime(2026, 2, 1, 9, tzinfo=UTC)
    assert {name: found for name, found in rows.items() if not name.startswith("diagnostic")} == {
        "task_at_target": [("t1", "p1", "requested", None, "anna", day, due, None, None, None)],
        "task_note": [("t1", "p1", 0, "anna", at_nine, None), ("t1", "p1", 1, None, None, None)],
        "payment_at_target": [("n1", "p1", "active", "paid", day, Decimal("12.50"), "USD", None)],
        "questionnaire_item": [
            ("q1", 0, "part", None, None, None, None, None, None),
            ("q1", 1, "a", None, True, None, None, None, None),
            ("q1", 2, "b", None, None, None, "any", None, None),
        ],
        "question_condition": [
            ("q1", 2, "b", 0, "a", "=", "urn:s", "yes", None, None, None),
            ("q1", 2, "b", 1, "c", ">", None, None, 1.5, None, None),
        ],
        "question_code": [
            ("q1", 1, "a", 0, "urn:s", "yes", None),
            ("q1", 1, "a", 1, "urn:s", "other", None),
        ],
        "questionnaire_response_item": [
            ("a1", "p1", "in-progress", None, 0, "part", None, 0, *[None] * 10),
            ("a1", "p1", "in-progress", None, 1, "a", None, 0, "urn:s", "yes", *[None] * 8),
            ("a1", "p1", "in-progress", None, 2, "b", None, 0, *[None] * 10),
            ("a1", "p1", "in-progress", None, 2, "b", None, 1, *[None] * 10),
            ("a1", "p1", "in-progress", None, 2, "b", None, 2, None, None, None, 3, *[None] * 6),
        ],
        "observation_coding": [
            ("o1", "p1", "code", 0, "urn:s", "yes", None),
            ("o1", "p1", "code", 1, "urn:s", "other", None),
            ("o1", "p1", "interpretation", 0, None, "H", None),
        ],
        "observation_range": [
            ("o1", "p1", 0, None, None, 1.0, 2.5, "g", "g", None, None, None, None),
            ("o1", "p1", 1, None, None, None, 9.0, None, None, None, 12.0, "a", None),
        ],
    }
    (world.home / "reports.toml").write_text("publish_free_text = true\n")
    world.publish()
    said = ("CALL", "FIRST", "SECOND", "ASKED", "SAID", "1970-01-01", "of CHILDREN")
    values = {value for name in OURS for row in world.rows(f"FROM {name}") for value in row}
    assert values.issuperset(said)


@pytest.mark.long
def test_items_below_answers_are_rows_too_at_any_depth(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """VIEW-02: in R4, the items that follow from an answer are nested under that answer."""
    publish_only(monkeypatch, "questionnaire_response_item")
    last = {"linkId": "years", "answer": [{"valueInteger": 9}]}
    packs = {"linkId": "packs", "answer": [{"valueDecimal": 1.5, "item": [last]}, {"valueDecimal": 2}]}
    pipe = {"linkId": "pipe", "item": [{"linkId": "since"}]}
    smoker = {"linkId": "smoker", "answer": [{"valueBoolean": True, "item": [packs]}, {"item": [pipe]}]}
    show(world, {**FILLED, "item": [{"linkId": "habits", "item": [smoker]}, {"linkId": "b"}]})
    columns = "item_position, link_id, position, value_boolean, value_decimal, value_integer"
    assert world.rows(f"SELECT {columns} FROM questionnaire_response_item ORDER BY item_position, position") == [
        (0, "habits", 0, None, None, None),
        (1, "smoker", 0, True, None, None),
        (1, "smoker", 1, None, None, None),
        (2, "packs", 0, None, 1.5, None),
        (2, "packs", 1, None, 2.0, None),
        (3, "years", 0, None, None, 9),
        (4, "pipe", 0, None, None, None),
        (5, "since", 0, None, None, None),
        (6, "b", 0, None, None, None),
    ]


@pytest.mark.long
def test_odd_resources_stop_none_of_the_views_that_come_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """VIEW-02: a target of another make may have elements of other shapes, lists for single values, and doubles."""

    def odd(body: dict[str, Any], value: Any) -> dict[str, Any]:
        return {name: each if name in ("resourceType", "id") else value for name, each in body.items()}

    every = (TASK, FORM, FILLED, PAID, MEASURED)
    values: tuple[Any, ...] = ("x", 7, [], [[{}]], {}, [{"coding": "x", "item": 3, "answer": {}}], {"reference": ["x"]})
    oddest = [
        odd(body, value) | {"id": f"{body['id']}-{place}"}
        for body in every
        for place, value in enumerate([*values, None])
    ]
    doubled = {**FORM, "item": [*FORM["item"], *FORM["item"]]}
    twice = {**FILLED, "item": [*FILLED["item"], *FILLED["item"]]}
    far = {**TASK, "authoredOn": "infinity", "restriction": {"period": {"end": "99999-01-01"}}}
    publish_only(monkeypatch, *OURS)
    show(world, *oddest, doubled, twice, far, {**PAID, "amount": {"value": 1e30}}, MEASURED)
    assert world.rows("SELECT count(*) FROM questionnaire_response_item WHERE response_id = 'a1'") == [(10,)]
    assert world.rows("SELECT authored_at, due_at FROM task_at_target WHERE task_id = 't1'") == [(None, None)]
    assert world.rows("SELECT amount FROM payment_at_target WHERE payment_id = 'n1'") == [(None,)]
    assert world.rows("SELECT count(*) FROM task_at_target") == [(9,)]


def test_the_free_text_tag_is_accepted_only_on_a_column_of_one_text(world: World) -> None:
    """VIEW-02"""
    free = {"name": "chartferry/free-text", "value": "true"}
    for column in ({"type": "boolean"}, {"collection": True}, {"tag": [{**free, "value": "yes"}]}):
        put(world, {**TEXT, "tag": [free], **column})
        with pytest.raises(PublicationError, match="chartferry/free-text is `true`, for a column of one text"):
            world.publish()
    put(world, {**TEXT, "tag": [free]})
    world.publish()
    assert set(world.rows("FROM mine")) == {(None,)}


def test_the_views_that_come_with_it_describe_every_column() -> None:
    """VIEW-02"""
    views = [table.view for table in report_tables() if table.view]
    assert {view.name for view in views} == OURS
    assert all(column.description for view in views for column in columns_of(view.select))
    assert all(view.description for view in views)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.long) for kind in ("PaymentNotice", "QuestionnaireResponse")), "Task"],
)
def test_a_view_is_published_of_what_others_write_too(world: World, kind: str) -> None:
    """VIEW-02: deleted resources are left out. A type that was never read gives a table without rows."""
    put(world, ID, resource=kind)
    world.publish()
    assert world.rows("FROM mine") == []
    for names in ("ab", "bc"):
        there = Target([{"resourceType": kind, "id": name} for name in names])
        sweep_changes(there, world.home, TARGET, kind, clock=world.clock)
        world.time += timedelta(days=1)
    world.publish()
    assert world.rows("FROM mine") == [("b",), ("c",)]


@pytest.mark.long
def test_a_view_is_published_of_questionnaires_and_results(world: World) -> None:
    """VIEW-02"""
    put(world, ID, resource="Questionnaire")
    put(world, ID, file="results", resource="Observation")
    world.reports = [report("r1", result=[{"reference": "Observation/o1"}])]
    world.results = [{"resourceType": "Observation", "id": "o1"}]
    world.questionnaires = [{"resourceType": "Questionnaire", "id": "q1", "status": "active"}]
    world.publish()
    assert (world.rows("FROM mine"), world.rows("FROM results")) == ([("q1",)], [("o1",)])


COLUMNS = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal"


def test_a_table_of_a_view_without_rows_is_as_its_query_would_make_it(
    whole: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VIEW-02"""
    publish_only(monkeypatch, *OURS)
    ours = partial(replace, is_ours=True)
    monkeypatch.setattr(making, "make", lambda db, table, filled: building.make(db, ours(table), filled))
    kinds = ("boolean", "integer", "decimal", "dateTime", "date", "code")
    put(whole, *({"name": kind.lower(), "path": f"x.ofType({kind})", "type": kind} for kind in kinds))
    whole.reports = []
    found = []
    for filled in (set[str](), set(VIEWED.values())):
        monkeypatch.setattr(making, "filled_of", lambda _, filled=filled: filled)
        whole.publish()
        found.append(whole.rows(COLUMNS))
    assert found[0] == found[1]
    assert {table for table, *_ in found[0]} >= OURS | {"mine"}


@pytest.mark.alike
@pytest.mark.parametrize("reports", [[], [report("r1")]], ids=["nothing", "a report"])
def test_a_view_that_duckdb_refuses_fails_before_its_first_resource_is_read(
    reports: list[dict[str, Any]], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, ID)
    refused = SimpleNamespace(sql="SELECT report_id FROM nowhere")
    monkeypatch.setattr(building, "compile_view", lambda *_, **__: refused)
    world.reports = reports
    with pytest.raises(PublicationError, match=r"^not published: mine\.view\.json: Catalog Error: .* nowhere"):
        world.publish()


DOUBLE = {"select": [{"column": [ID, {**TEXT, "name": "report_id"}]}]}
AT = "mine.view.json: select[0].column[1]"

OF_NOTHING = {"tag": [{"name": "chartferry/references", "value": "nothing"}]}
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
    (OF_NOTHING, {}, "mine.view.json: its key or references"),
    (OF_NOTHING, {"resource": "Observation"}, "mine.view.json: its key or references"),
    ({"tag": [{"name": "chartferry/references", "value": "task"}]}, {}, "mine.view.json: its key or references"),
    ({"tag": [{"name": "chartferry/key", "value": "true"}]}, {}, "these are not true: mine has one row per"),
]


def test_a_bad_view_leaves_the_last_publication_as_it_is(whole: World) -> None:
    """VIEW-02: the message names the file and the place, and holds no data."""
    path = put(whole, ID, TEXT)
    before = whole.publish().path.stat()
    for column, more, said in MISTAKES:
        put(whole, ID, {**TEXT, **column}, **more)
        with pytest.raises(PublicationError) as told:
            whole.publish()
        assert said in str(told.value)
        assert len(str(told.value).splitlines()) == 1
        assert "LAB" not in str(told.value)
        assert (whole.home / "published" / "reports.duckdb").stat() == before
    path.unlink()
    assert "mine" not in whole.publish().rows


def test_a_view_with_an_internal_table_name_is_refused_and_the_other_assets_stay(tmp_path: Path) -> None:
    """VIEW-02"""
    ours = {table.name for table in report_tables()}
    with unpublished(tmp_path) as world:
        (world.home / "views").mkdir()
        world.publish()
        made = {name for (name,) in world.rows("SELECT table_name FROM duckdb_tables() WHERE temporary")}
        assert made >= {"charge", "known_form", "ledger_batch"}
        for name in sorted(made | set(VIEWED.values())):
            path = put(world, ID, file=name)
            said = f"{name}.view.json: name: tables are made from something of the name `{name}`; choose another"
            assert why_not_published(world.home, path) == said
            assert {table.name for table in readable_tables(world.home)} == ours
            path.unlink()
        put(world, ID, file="sweep")
        with pytest.raises(PublicationError, match="name: tables are made from something of the name `sweep`"):
            world.publish()


def test_a_view_with_the_name_of_a_published_table_is_refused_and_the_other_assets_stay(world: World) -> None:
    """VIEW-02"""
    put(world, ID, file="diagnostic_report")
    said = "diagnostic_report.view.json: the table `diagnostic_report` is declared by diagnostic_report.sql already"
    with pytest.raises(PublicationError, match=said):
        world.publish()
    assert {table.name for table in readable_tables(world.home)} == {table.name for table in report_tables()}
