"""Responses that the import did not make, where the target shows its responses: their answers, scores, wide tables."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.publishing import START, World, carry_over, publish_only
from tests.support.responses_of_others import FORM, STORY, items, response


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let publications make only the tables that most tests look at."""
    publish_only(monkeypatch, "score", "score_by_patient", wide=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.reports, made.questionnaires = [], [FORM]
    yield made
    made.ledger.close()


@pytest.mark.usefixtures("few")
def test_responses_of_others_are_counted_beside_those_of_the_import(world: World) -> None:
    """SCORE-01: a response that the import made counts once, as it was sent; one entered in error counts no more."""
    own = START, {"questionnaire": "http://chart/Questionnaire/q1", "item": items(low="yes", tired="no")}
    carry_over(world, "QuestionnaireResponse", {"r1": own, "r2": own})
    world.responses = [
        response("id-r1", *items(low="no", tired="no")),
        response("id-r2", status="entered-in-error"),
        response("theirs", *items(low="yes", tired="yes"), STORY),
        response("half", *items(low="yes"), authored="2026-02-04"),
        response("wrong", *items(low="yes", tired="yes"), status="entered-in-error"),
        response("begun", *items(low="yes", tired="yes"), status="in-progress"),
    ]
    done = world.publish()
    shown = "SELECT resource_id, is_imported, patient_id, questionnaire_id, batch_id, questions_answered"
    assert world.rows(f"{shown} FROM questionnaire_response") == [
        ("half", False, "p7", "q1", None, 1),
        ("id-r1", True, "p1", "q1", "answers-0123456789ab", 2),
        ("theirs", False, "p7", "q1", None, 3),
    ]
    assert world.rows("SELECT response_id, value, complete, missing FROM score WHERE score_name = 'Mood'") == [
        ("half", 2, False, 1),
        ("id-r1", 2, True, 0),
        ("theirs", 3, True, 0),
    ]
    assert world.rows("SELECT patient_id, value FROM score_by_patient") == [("p1", 2), ("p7", 3)]
    assert world.rows("SELECT response_id, low, tired FROM response_mood") == [
        ("half", "yes", None),
        ("id-r1", "yes", "no"),
        ("theirs", "yes", "yes"),
    ]
    assert world.rows("SELECT kind, text FROM answer WHERE link_id = 'story'") == [("text", None), ("text", None)]
    assert b"SECRET" not in done.path.read_bytes()


@pytest.mark.long
def test_free_text_of_others_is_published_only_where_the_home_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.responses = [response("theirs", STORY)]
    (world.home / "reports.toml").write_text("publish_free_text = true\n")
    with monkeypatch.context() as patched:
        publish_only(patched, "answer")
        world.publish()
    assert world.rows("SELECT text FROM answer ORDER BY position") == [("SECRET",), ("1931-07-09",)]
    (world.home / "reports.toml").write_text("")
    done = world.publish()
    for file in [done.path, *done.path.parent.glob("parquet/*.parquet")]:
        assert b"SECRET" not in file.read_bytes()
        assert b"1931-07-09" not in file.read_bytes()


@pytest.mark.long
@pytest.mark.usefixtures("few")
def test_a_response_of_the_import_keeps_its_answers_after_its_rows_were_purged(world: World) -> None:
    own = START, {"questionnaire": "http://chart/Questionnaire/q1", "item": items(low="yes")}
    batch = carry_over(world, "QuestionnaireResponse", {"r1": own})
    (world.home / "batches" / batch / "run-1" / "accepted.parquet").unlink()
    world.responses = [response("id-r1", *items(low="yes"))]
    world.publish()
    assert world.rows("SELECT response_id, patient_id, option_code FROM answer") == [("id-r1", "p1", "yes")]
    assert world.rows("SELECT is_imported, questionnaire_id FROM questionnaire_response") == [(True, "q1")]


@pytest.mark.long
@pytest.mark.usefixtures("few")
def test_values_of_every_kind_are_read(world: World) -> None:
    values = [{"valueInteger": 3}, {"valueQuantity": {"value": 4.5}}, {"valueBoolean": True}, {"valueReference": {}}]
    world.responses = [response("theirs", {"linkId": "low", "answer": values}, questionnaire="elsewhere|1")]
    world.publish()
    assert world.rows("SELECT position, kind, option_code, number FROM answer") == [
        (1, "number", None, 3),
        (2, "number", None, 4.5),
        (3, "choice", "true", None),
    ]
    assert world.rows("SELECT questionnaire_id FROM questionnaire_response") == [(None,)], "its form is not known here"


@pytest.mark.usefixtures("few")
def test_responses_are_read_whole_once_a_day_and_in_between_as_they_change(world: World) -> None:
    def at(time: str) -> dict[str, Any]:
        return {"meta": {"lastUpdated": time}}

    world.is_dated = True
    world.responses = [response("a", **at("2026-03-01T09:30:00Z")), response("b", **at("2026-03-01T08:00:00Z"))]
    world.read()
    assert ("QuestionnaireResponse", None) in world.asked
    world.responses = [response("c", **at("2026-03-01T10:00:00Z"))]
    world.publish()
    assert ("QuestionnaireResponse", {"_lastUpdated": "ge2026-03-01T08:30:00Z"}) in world.asked
    assert world.rows("SELECT resource_id FROM questionnaire_response") == [("a",), ("b",), ("c",)]
    world.read()
    assert ("QuestionnaireResponse", {"_lastUpdated": "ge2026-03-01T09:00:00Z"}) in world.asked
    world.time += timedelta(days=1)
    world.publish()
    assert ("QuestionnaireResponse", None) in world.asked
    assert world.rows("SELECT resource_id FROM questionnaire_response") == [("c",)]


@pytest.mark.long
@pytest.mark.usefixtures("few")
def test_a_target_that_cannot_be_asked_for_changes_is_read_once_a_day(world: World) -> None:
    world.responses = [response("a")]
    world.read()
    world.responses = [response("b")]
    world.publish()
    assert world.rows("SELECT resource_id FROM questionnaire_response") == [("a",)]
    world.time += timedelta(days=1)
    world.publish()
    assert world.rows("SELECT resource_id FROM questionnaire_response") == [("b",)]
