"""A questionnaire that the target replaced under its id: answers belong to the form that they were given to."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.reports.content_names import content_name
from pipelines.reports.sweep import folder_of
from tests.support.exports import put
from tests.support.publishing import START, TARGET, World, carry_over, publish_only

LOINC = "http://loinc.org"
ORDINAL = "http://hl7.org/fhir/StructureDefinition/ordinalValue"
URL = "http://forms.example/mood"


def form(*texts: str, value: float = 1, **more: Any) -> dict[str, Any]:
    extension = [{"url": ORDINAL, "valueDecimal": value}]
    option = {"valueCoding": {"system": LOINC, "code": "low", "display": "Low", "extension": extension}}
    items = [
        {"linkId": f"a{place}", "type": "choice", "text": text, "answerOption": [option]}
        for place, text in enumerate(texts, 1)
    ]
    about = {"resourceType": "Questionnaire", "id": "q1", "name": "Mood", "status": "active"}
    return about | more | {"item": items}


OLD, NEW = form("Sad?", "Tired?"), form("Sad?", "In pain?", value=5)


def answers(*links: str, **more: Any) -> dict[str, Any]:
    given = [{"linkId": link, "answer": [{"valueCoding": {"system": LOINC, "code": "low"}}]} for link in links]
    return {"questionnaire": "http://chart/Questionnaire/q1", "item": given} | more


def of_others(name: str, authored: datetime | None, **more: Any) -> dict[str, Any]:
    about = {"resourceType": "QuestionnaireResponse", "id": name, "status": "completed"}
    when = {"authored": authored.isoformat()} if authored else {}
    return about | when | answers("a1", "a2") | {"subject": {"reference": "Patient/p1"}} | more


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "score", wide=True)
    made = World(tmp_path)
    made.reports, made.questionnaires = [], [OLD]
    yield made
    made.ledger.close()


def checked_by(world: World, batch: str, questionnaire: dict[str, Any]) -> None:
    """Write down what the run of a batch checked its answers by."""
    model = check(RESOURCES["Questionnaire"], questionnaire, Site(), needs=()).model
    assert model
    manifest: dict[str, Any] = {
        "target": TARGET,
        "started_at": "2026-03-01T12:00:00.000000Z",
        "source": "default",
        "feed_hash": "f1",
    }
    manifest |= {"resource": "QuestionnaireResponse", "questionnaires": {"q1": content_name(model)}}
    (world.home / "batches" / batch / "run-1" / "manifest.json").write_text(json.dumps(manifest))


def replaced(world: World, new: dict[str, Any] = NEW) -> None:
    """Publish the questionnaire as it is; a day later another is in its place."""
    world.publish()
    world.time += timedelta(days=1)
    world.questionnaires = [new]


def shown(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT response_id, questionnaire_id, a1, a2, a2_2 FROM response_mood ORDER BY 1")


def test_answers_to_a_form_that_was_replaced_keep_their_own_columns_words_and_values(world: World) -> None:
    batch = carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    checked_by(world, batch, form("Of before the first sweep?"))
    replaced(world)
    world.publish()
    world.responses = [of_others("theirs", world.time + timedelta(hours=1))]
    world.time += timedelta(hours=2)
    done = world.publish()
    assert shown(world) == [("id-r1", "q1~1", "low", "low", None), ("theirs", "q1", "low", None, "low")]
    asked = "SELECT question.text FROM answer JOIN question USING (questionnaire_id, link_id) WHERE link_id = 'a2'"
    assert world.rows(f"{asked} ORDER BY response_id") == [("Tired?",), ("In pain?",)]
    assert world.rows("SELECT score_name, value FROM score ORDER BY response_id") == [("Mood", 2), ("Mood", 10)]
    assert world.rows("SELECT questionnaire_id, name, gone_at IS NULL FROM questionnaire ORDER BY 1") == [
        ("q1", "Mood", True),
        ("q1~1", "Mood", False),
    ]
    said = "Versions of Mood ask different things by one linkId, and each has a column of its own (a2: a2, a2_2)."
    assert done.remarks == [f"response_mood: {said}"]


def test_a_response_is_of_the_form_that_its_run_checked_it_by(world: World) -> None:
    """The sweep finds the other form only after the import."""
    replaced(world)
    batch = carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    checked_by(world, batch, NEW)
    world.publish()
    assert world.rows("SELECT response_id, a1, a2 FROM response_mood") == [("id-r1", "low", "low")]
    assert world.rows("SELECT questionnaire_id FROM questionnaire_response") == [("q1",)]
    checked_by(world, batch, OLD)
    world.publish()
    assert world.rows("SELECT questionnaire_id FROM questionnaire_response") == [("q1~1",)]


@pytest.mark.parametrize("kept", ["a manifest of a third content", "no manifest"])
def test_responses_that_may_be_of_either_form_are_in_no_wide_table_and_that_is_told(world: World, kept: str) -> None:
    replaced(world)
    batch = carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    if kept != "no manifest":
        checked_by(world, batch, form("Hungry?"))
    world.responses = [of_others("early", START - timedelta(days=9)), of_others("undated", None)]
    done = world.publish()
    told = "3 responses name Mood (q1), and which of its versions was answered is not known: "
    assert done.remarks == [f"response_mood: {told}the answers are in `answer`, and not here."]
    assert world.rows("SELECT count(*) FROM response_mood") == [(0,)]
    assert world.rows("SELECT count(*), count(questionnaire_id), count(option_display) FROM answer") == [(6, 0, 0)]
    assert world.rows("SELECT count(*) FROM score") == [(0,)]


def test_a_response_that_names_a_version_is_of_that_version(world: World) -> None:
    world.questionnaires = [OLD | {"url": URL, "version": "1"}]
    replaced(world, NEW | {"url": URL, "version": "2"})
    names = {"r1": f"{URL}|1", "r2": f"{URL}|2", "r3": f"{URL}|3"}
    carry_over(
        world,
        "QuestionnaireResponse",
        {key: (START, answers("a1", "a2", questionnaire=name)) for key, name in names.items()},
    )
    done = world.publish()
    assert shown(world) == [("id-r1", "q1~1", "low", "low", None), ("id-r2", "q1", "low", None, "low")]
    assert "1 response names Mood (q1), and which of its versions was answered is not known" in done.remarks[1]


@pytest.mark.parametrize(
    "new", [form("Sad?", "Tired?", "In pain?"), form("SAD", "Tired?"), form("Sad?"), OLD | {"title": "Mood today"}]
)
def test_a_form_that_asks_nothing_else_by_its_linkids_stays_one_questionnaire(
    world: World, new: dict[str, Any]
) -> None:
    carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    replaced(world, new)
    done = world.publish()
    assert world.rows("SELECT questionnaire_id FROM questionnaire") == [("q1",)]
    assert world.rows("SELECT count(*) FROM response_mood WHERE a1 = 'low'") == [(1,)]
    assert not done.remarks


def test_a_form_that_came_back_is_the_form_that_it_was(world: World) -> None:
    """And what a kill left twice is there once."""
    carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    replaced(world)
    swept = folder_of(world.home, TARGET) / "questionnaires.parquet"
    before = swept.read_bytes()
    world.publish()
    swept.write_bytes(before)
    replaced(world, OLD)
    world.publish()
    assert world.rows("SELECT questionnaire_id FROM questionnaire ORDER BY 1") == [("q1",), ("q1~1",)]
    assert world.rows("SELECT questionnaire_id FROM questionnaire_response") == [("q1",)]


def test_a_first_sweep_that_a_kill_left_without_its_figures_does_not_stop_the_next(world: World) -> None:
    replaced(world)
    (folder_of(world.home, TARGET) / "questionnaires.json").unlink()
    world.publish()
    assert world.rows("SELECT questionnaire_id FROM questionnaire ORDER BY 1") == [("q1",), ("q1~1",)]


ANSWERS = "response_id,patient_id,questionnaire,question,answer_code\n"


@pytest.mark.publishes("score", wide=True)
def test_an_import_after_the_form_was_replaced_says_so_at_its_end(home, target, asked, chartferry):
    """The answers of each file are of the form that the target had when it was imported."""
    target.stored["q1"] = OLD
    put(home, "answers-1.csv", ANSWERS + "k1,p1,q1,a1,low\nk1,p1,q1,a2,low\n")
    assert asked("import")["remarks"] == []
    target.stored["q1"] = NEW
    put(home, "answers-2.csv", ANSWERS + "k2,p1,q1,a1,low\nk2,p1,q1,a2,low\n")
    code, out, err = chartferry("import")
    said = (
        "note: response_mood: Versions of Mood ask different things by one linkId, and each has a column of its own "
        "(a2: a2, a2_2)."
    )
    assert code == 0, err
    assert said in out.splitlines()
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as db:
        of_form = "SELECT questionnaire_id, a1, a2, a2_2 FROM response_mood ORDER BY authored_at"
        assert db.execute(of_form).fetchall() == [("q1~1", "low", "low", None), ("q1", "low", None, "low")]
    code, out, _ = chartferry("reports")
    assert said in out.splitlines()
