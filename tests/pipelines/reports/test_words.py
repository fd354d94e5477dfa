"""The tables of words: questionnaires with their questions and options, codes, practitioners, and groups."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.client.replies import TargetUnusable
from pipelines.home.progress_bars import progress_on
from pipelines.reports.readings import unread
from pipelines.reports.sweep import FILES, folder_of
from pipelines.reports.words import rows_of
from pipelines.session.opening import open_session
from pipelines.session.sweeping import sweep_target
from tests.support.commands import home_with, load
from tests.support.publishing import World, carry_over, publish_only

LOINC = "http://loinc.org"


def option(code: str, display: str, **more: Any) -> dict[str, Any]:
    return {"valueCoding": {"system": LOINC, "code": code, "display": display, **more}}


def declared(value: float, url: str = "http://hl7.org/fhir/StructureDefinition/ordinalValue") -> dict[str, Any]:
    return {"extension": [{"url": url, "valueDecimal": value}]}


MOOD = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "Mood",
    "status": "active",
    "description": "How are you?",
    "code": [{"system": LOINC, "code": "44249-1"}],
    "item": [
        {
            "linkId": "g",
            "type": "group",
            "text": "Today",
            "item": [
                {
                    "linkId": "low",
                    "type": "choice",
                    "text": "Feeling low?",
                    "code": [{"system": LOINC, "code": "44255-8"}],
                    "answerOption": [
                        option("LA1", "No", **declared(0)),
                        option("LA2", "Yes") | declared(1.5, "http://hl7.org/fhir/StructureDefinition/itemWeight"),
                        option("LA3", "Perhaps"),
                    ],
                },
                {"linkId": "why", "type": "text", "enableWhen": [{"question": "low"}]},
            ],
        },
        {"linkId": "signs", "type": "choice", "repeats": True, "text": "Which signs?"},
    ],
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "question", "answer_option", "code", "practitioner", "care_group")
    made = World(tmp_path)
    made.questionnaires = [MOOD]
    yield made
    made.ledger.close()


def test_questionnaires_questions_and_options_are_published_with_their_words_in_order(world: World) -> None:
    world.publish()
    assert world.rows("SELECT * EXCLUDE (first_seen_at) FROM questionnaire") == [
        ("q1", "Mood", "active", "How are you?", LOINC, "44249-1", 3, None, None)
    ]
    assert world.rows("FROM question") == [
        ("q1", "g", 1, None, "Today", "group", False, False, None, None),
        ("q1", "low", 2, "g", "Feeling low?", "choice", False, False, LOINC, "44255-8"),
        ("q1", "why", 3, "g", None, "text", False, True, None, None),
        ("q1", "signs", 4, None, "Which signs?", "choice", True, False, None, None),
    ]
    assert world.rows("FROM answer_option") == [
        ("q1", "low", 1, LOINC, "LA1", "No", 0.0),
        ("q1", "low", 2, LOINC, "LA2", "Yes", 1.5),
        ("q1", "low", 3, LOINC, "LA3", "Perhaps", None),
    ]
    assert world.rows("SELECT code, display, used_for FROM code WHERE code LIKE '44%' OR code = 'LAB'") == [
        ("44249-1", "Mood", "questionnaire"),
        ("44255-8", "Feeling low?", "question"),
        ("LAB", "Laboratory", "report category"),
    ]


def test_a_changed_questionnaire_and_one_that_is_gone_show_when(world: World) -> None:
    world.read()
    world.time += timedelta(days=1)
    world.questionnaires = [MOOD | {"status": "retired"}, MOOD | {"id": "q2", "name": "Sleep"}]
    world.read()
    world.questionnaires = [world.questionnaires[1]]
    world.publish()
    seen = "SELECT questionnaire_id, status, changed_at IS NOT NULL, gone_at IS NOT NULL FROM questionnaire"
    assert world.rows(seen) == [("q1", "retired", True, True), ("q2", "active", False, False)]


def test_practitioners_and_groups_are_published_with_their_names_if_known(world: World) -> None:
    world.names = {"Practitioner/d1": "Ann Doe", "Practitioner/d7": "Bo Roe", "Group/g9": "Night"}
    group = {"extension": [{"valueReference": {"reference": "Group/g1"}}]}
    body = {"status": "requested", "requester": {"reference": "Practitioner/d4"}, **group}
    carry_over(world, "Task", {"t1": (None, body)})
    world.publish()
    assert world.rows("FROM practitioner") == [
        ("d1", "Ann Doe"),
        ("d2", None),
        ("d3", None),
        ("d4", None),
        ("d7", "Bo Roe"),
    ]
    assert world.rows("FROM care_group") == [("g1", None), ("g9", "Night")]


ODD: list[dict[str, Any]] = [
    {"item": "none", "code": {}, "name": 7},
    {
        "item": [
            1,
            {"linkId": 2},
            {"linkId": "a", "item": {}, "answerOption": [1, {}, {"valueCoding": "x"}], "code": [1]},
        ]
    },
    {"item": [{"linkId": "a"}, {"linkId": "a", "text": "again"}]},
    {"item": [{"linkId": "a", "answerOption": [option("x", "X", extension=[{"url": [], "valueDecimal": True}, 3])]}]},
]


def test_malformed_parts_of_a_questionnaire_are_left_out_of_the_tables(world: World) -> None:
    world.questionnaires = [{"resourceType": "Questionnaire", "id": f"odd{n}", **body} for n, body in enumerate(ODD)]
    world.publish()
    questions = [(f"odd{n}", "a") for n, body in enumerate(ODD) if body["item"] != "none"]
    assert world.rows("SELECT questionnaire_id, link_id FROM question ORDER BY ALL") == questions
    assert world.rows("SELECT declared_value FROM answer_option WHERE declared_value IS NOT NULL") == []


def test_a_deep_questionnaire_is_read_to_its_end() -> None:
    body = '{"item":[' + '{"linkId":"x","item":[' * 200 + "]}" * 200 + "]}"
    questions = rows_of([("deep", body)])[1]
    assert questions.column("link_id").to_pylist() == ["x"]


PEOPLE = [
    {"resourceType": "Practitioner", "id": "d1", "name": [{"family": "Doe", "given": ["Zoë"]}]},
    {"resourceType": "Group", "id": "g1", "type": "practitioner", "actual": True, "name": "Front desk"},
    {"resourceType": "Patient", "id": "p1", "name": [{"family": "Secret"}]},
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with people, which is copied for each test."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "people.ndjson").write_text("\n".join(map(json.dumps, PEOPLE)))
    load(folder / "home", folder / "people.ndjson")
    return folder / "home" / "service.duckdb"


@pytest.fixture
def home(tmp_path: Path, loaded: Path) -> Path:
    return home_with(loaded, tmp_path / "home")


def test_the_bundled_service_gives_names_of_groups_and_practitioners_only(home: Path) -> None:
    """REPORT-25"""
    with open_session(home, {}) as session:
        assert dict(session.connection.names()) == {"Group/g1": "Front desk", "Practitioner/d1": "Zoë Doe"}


def refused() -> dict[str, str]:
    raise TargetUnusable("no")


def test_words_that_cannot_be_read_hold_nothing_up(home: Path) -> None:
    said = io.StringIO()
    with open_session(home, {}, progress=progress_on(said)) as session:
        session.connection = replace(session.connection, names=refused)
        assert sweep_target(session).total == 0
        assert list(unread(folder_of(home, session.target))) == ["questionnaires or names"]
    assert said.getvalue().splitlines() == [
        "questionnaires or names could not be read (no): the tables have those last read"
    ]


def test_a_part_that_the_target_shows_no_more_is_noted_as_not_read(home: Path) -> None:
    with open_session(home, {}) as session:
        folder, able = folder_of(home, session.target), session.connection.capabilities
        none = replace(session.connection, capabilities=able._replace(searched=frozenset({"DiagnosticReport"})))
        shown, session.connection = session.connection, none
        sweep_target(session)
        assert unread(folder) == {}
        session.connection = shown
        sweep_target(session)
        assert unread(folder) == {}
        session.connection = none
        sweep_target(session)
        assert set(unread(folder)) == {"results of reports", "responses", "payments", "tasks"}
        assert all(each.read_at and each.since > each.read_at for each in unread(folder).values())


@pytest.mark.long
def test_tasks_and_payments_are_not_read_for_views_after_an_import(home: Path) -> None:
    with open_session(home, {}) as session:
        files = [folder_of(home, session.target) / FILES[kind][0] for kind in ("Task", "PaymentNotice")]
        sweep_target(session, with_views=False)
        assert not any(file.exists() for file in files)
        sweep_target(session)
        assert all(file.exists() for file in files)
