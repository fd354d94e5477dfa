"""A questionnaire that the target replaced under its id: its former forms, their columns, words and scores."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.reports.sweep import folder_of
from tests.support.exports import put
from tests.support.former_forms import (
    NEW,
    OLD,
    answers,
    asking,
    checked_by,
    each_of_its_own,
    form,
    name_of,
    of_others,
    replaced,
    shown,
)
from tests.support.publishing import START, TARGET, World, carry_over


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with asking(tmp_path) as made:
        yield made


def test_answers_to_a_form_that_was_replaced_keep_their_own_columns_words_and_values(world: World) -> None:
    batch = carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    checked_by(world, batch, form("Of before the first sweep?"))
    replaced(world)
    world.read()
    world.responses = [of_others(name, world.time + timedelta(hours=1)) for name in ("id-r1", "theirs")]
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


@pytest.mark.long
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


def test_responses_whose_form_is_unknown_are_in_no_wide_table_and_a_remark_counts_them(world: World) -> None:
    """Those of runs without a manifest, or with a manifest of a third content."""
    replaced(world)
    one, _ = (
        carry_over(world, "QuestionnaireResponse", {key: (START, answers("a1", "a2"))}, number)
        for key, number in (("r1", "0123456789ab"), ("r2", "ffffffffffff"))
    )
    checked_by(world, one, form("Hungry?"))
    world.responses = [
        of_others("early", START - timedelta(days=9)),
        *(of_others(name, None) for name in ("undated", "id-r1", "id-r2")),
    ]
    done = world.publish()
    told = "4 responses name Mood (q1), and which of its versions was answered is not known: "
    assert done.remarks == [f"response_mood: {told}the answers are in `answer`, and not here."]
    assert world.rows("SELECT count(*) FROM response_mood") == [(0,)]
    assert world.rows("SELECT count(*), count(questionnaire_id), count(option_display) FROM answer") == [(8, 0, 0)]
    assert world.rows("SELECT count(*) FROM score") == [(0,)]


def replaced_at_once(world: World, old: dict[str, Any], new: Sequence[dict[str, Any]]) -> list[str]:
    """Publish an answer to each of as many questionnaires, which were replaced since; return the wide tables."""
    world.questionnaires = each_of_its_own([old] * len(new))
    there: dict[str, tuple[datetime | None, dict[str, Any]]] = {
        f"r{n}": (START, answers("a1", "a2", questionnaire=f"http://chart/Questionnaire/{each['id']}"))
        for n, each in enumerate(world.questionnaires)
    }
    checked_by(world, carry_over(world, "QuestionnaireResponse", there), *world.questionnaires)
    world.read()
    world.time += timedelta(days=1)
    world.questionnaires = each_of_its_own(new)
    world.publish()
    return [f"response_mood_{n}" for n in range(1, len(new) + 1)]


@pytest.mark.long
def test_a_form_whose_linkids_keep_their_questions_stays_one_questionnaire(world: World) -> None:
    new = [form(*texts, value=None) for texts in (("Sad?", "Tired?", "In pain?"), ("SAD", "Tired?"), ("Sad?",))]
    new.append(form("Sad?", "Tired?", value=None, title="Mood today"))
    tables = replaced_at_once(world, form("Sad?", "Tired?", value=None), new)
    assert world.rows("SELECT questionnaire_id FROM questionnaire ORDER BY 1") == [("q1",), ("q2",), ("q3",), ("q4",)]
    assert [world.rows(f"SELECT count(*) FROM {each} WHERE a1 = 'low'") for each in tables] == [[(1,)]] * 4
    assert not world.published.remarks


def other_links(questionnaire: dict[str, Any]) -> dict[str, Any]:
    items = [each | {"linkId": each["linkId"].replace("a", "b")} for each in questionnaire["item"]]
    return questionnaire | {"item": items}


@pytest.mark.long
def test_scores_of_former_answers_stay_as_they_were(world: World) -> None:
    """A question fewer or more, another value or none, other linkIds: one questionnaire each."""
    new = [form("Sad?"), form("Sad?", "Tired?", "In pain?"), form("Sad?", "Tired?", value=9)]
    new += [form("Sad?", "Tired?", value=None), other_links(OLD)]
    tables = replaced_at_once(world, OLD, new)
    asked = "SELECT questionnaire_id, value, complete, missing FROM score ORDER BY 1"
    assert world.rows(asked) == [(f"q{n}~1", 2, True, 0) for n in range(1, 6)]
    assert [world.rows(f"SELECT a1, a2 FROM {each}") for each in tables] == [[("low", "low")]] * 5


@pytest.mark.long
def test_a_score_of_a_file_keeps_former_answers_where_a_question_that_it_counts_was_taken_away(world: World) -> None:
    (world.home / "scores").mkdir()
    rule = 'name = "Own"\nquestionnaires = ["Mood"]\nquestions = ["a1", "a2"]\n[values]\nlow = 3\n'
    (world.home / "scores" / "own.toml").write_text(rule)
    old, now = form("Sad?", "Tired?", "Why?", value=None), form("Sad?", value=None)
    world.questionnaires = [old]
    checked_by(world, carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))}), old)
    replaced(world, form("Sad?", "Tired?", value=None))
    world.publish()
    assert world.rows("SELECT questionnaire_id, value, complete FROM score") == [("q1", 6, True)]
    replaced(world, now)
    done = world.publish()
    assert world.rows("SELECT questionnaire_id, value, complete FROM score") == [("q1~1", 6, True)]
    said = "scores/own.toml: `questions` of the score Own names the question a2, and q1 has none of that linkId or code"
    assert done.remarks == [f"score: {said}: it has a1."]


def test_the_hash_of_a_questionnaire_does_not_change_between_versions(world: World) -> None:
    """Manifests of earlier imports hold it. If another element is read, leave it out of the hash, or keep both."""
    assert name_of(OLD) == "ea6c719d1fd6"


@pytest.mark.long
def test_a_form_that_the_target_shows_again_keeps_its_id(world: World) -> None:
    """A copy that a kill left twice is there once."""
    carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2"))})
    replaced(world)
    swept = folder_of(world.home, TARGET) / "questionnaires.parquet"
    before = swept.read_bytes()
    world.read()
    swept.write_bytes(before)
    replaced(world, OLD)
    world.publish()
    assert world.rows("SELECT questionnaire_id FROM questionnaire ORDER BY 1") == [("q1",), ("q1~2",)]
    assert world.rows("SELECT questionnaire_id FROM questionnaire_response") == [("q1",)]


@pytest.mark.long
def test_a_former_form_keeps_its_number_whatever_comes_back(world: World) -> None:
    """OLD is the first form, NEW the second, whichever of them is there."""
    world.read()
    texts = "SELECT list(questionnaire_id || ' ' || text ORDER BY questionnaire_id) FROM question WHERE link_id = 'a2'"
    found = []
    for new in (NEW, OLD, form("Sad?", "Hungry?")):
        world.time += timedelta(days=1)
        world.questionnaires = [new]
        world.publish()
        found += [world.rows(texts)[0][0]]
    assert found == [
        ["q1 In pain?", "q1~1 Tired?"],
        ["q1 Tired?", "q1~2 In pain?"],
        ["q1 Hungry?", "q1~1 Tired?", "q1~2 In pain?"],
    ]


@pytest.mark.long
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
