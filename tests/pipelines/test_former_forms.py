"""A questionnaire that the target replaced under its id: answers belong to the form that they were given to."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.ledger.lease import utc_text
from pipelines.ledger.rows import Intent, Outcome
from pipelines.reports.content_names import content_name
from pipelines.reports.sweep import folder_of
from tests.support.exports import put
from tests.support.publishing import START, TARGET, World, carry_over, publish_only

LOINC = "http://loinc.org"
ORDINAL = "http://hl7.org/fhir/StructureDefinition/ordinalValue"
URL = "http://forms.example/mood"


def form(*texts: str, value: float | None = 1, **more: Any) -> dict[str, Any]:
    declared = {} if value is None else {"extension": [{"url": ORDINAL, "valueDecimal": value}]}
    option = {"valueCoding": {"system": LOINC, "code": "low", "display": "Low"} | declared}
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


def name_of(questionnaire: dict[str, Any]) -> str:
    """The name that a questionnaire's content has in manifests."""
    model = check(RESOURCES["Questionnaire"], questionnaire, Site(), needs=()).model
    assert model
    return content_name(model)


def checked_by(world: World, batch: str, *questionnaires: dict[str, Any], run: int = 1) -> None:
    """Write down what a run of a batch checked its answers by."""
    manifest: dict[str, Any] = {
        "target": TARGET,
        "started_at": "2026-03-01T12:00:00.000000Z",
        "source": "default",
        "feed_hash": "f1",
    }
    contents = {each["id"]: name_of(each) for each in questionnaires}
    manifest |= {"resource": "QuestionnaireResponse", "questionnaires": contents}
    (world.home / "batches" / batch / f"run-{run}" / "manifest.json").write_text(json.dumps(manifest))


def replaced(world: World, new: dict[str, Any] = NEW) -> None:
    """Read the questionnaire as it is, as a publication does; a day later another is in its place."""
    world.read()
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


def each_of_its_own(forms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Forms as those of as many questionnaires: q1 and Mood 1, and so on."""
    return [each | {"id": f"q{n}", "name": f"{each['name']} {n}"} for n, each in enumerate(forms, 1)]


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


def test_a_form_that_asks_nothing_else_by_its_linkids_stays_one_questionnaire(world: World) -> None:
    new = [form(*texts, value=None) for texts in (("Sad?", "Tired?", "In pain?"), ("SAD", "Tired?"), ("Sad?",))]
    new.append(form("Sad?", "Tired?", value=None, title="Mood today"))
    tables = replaced_at_once(world, form("Sad?", "Tired?", value=None), new)
    assert world.rows("SELECT questionnaire_id FROM questionnaire ORDER BY 1") == [("q1",), ("q2",), ("q3",), ("q4",)]
    assert [world.rows(f"SELECT count(*) FROM {each} WHERE a1 = 'low'") for each in tables] == [[(1,)]] * 4
    assert not world.published.remarks


def other_links(questionnaire: dict[str, Any]) -> dict[str, Any]:
    items = [each | {"linkId": each["linkId"].replace("a", "b")} for each in questionnaire["item"]]
    return questionnaire | {"item": items}


def test_scores_of_former_answers_stay_as_they_were(world: World) -> None:
    """A question fewer or more, another value or none, other linkIds: one questionnaire each."""
    new = [form("Sad?"), form("Sad?", "Tired?", "In pain?"), form("Sad?", "Tired?", value=9)]
    new += [form("Sad?", "Tired?", value=None), other_links(OLD)]
    tables = replaced_at_once(world, OLD, new)
    asked = "SELECT questionnaire_id, value, complete, missing FROM score ORDER BY 1"
    assert world.rows(asked) == [(f"q{n}~1", 2, True, 0) for n in range(1, 6)]
    assert [world.rows(f"SELECT a1, a2 FROM {each}") for each in tables] == [[("low", "low")]] * 5


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


def test_answers_to_a_form_that_was_gone_and_came_back_as_another_are_of_the_former(world: World) -> None:
    world.read()
    world.responses = [of_others("early", world.time)]
    world.read()
    world.read()
    world.questionnaires = [NEW | {"id": "q9", "name": "Other"}]
    world.time += timedelta(days=1)
    world.read()
    world.questionnaires.append(NEW)
    world.time += timedelta(days=1)
    world.publish()
    assert of_forms(world) == [("early", "q1~1")]


def test_the_name_of_a_content_stays_the_same(world: World) -> None:
    """Manifests of earlier imports have it: where another field is read, name it without, or keep both."""
    assert name_of(OLD) == "ea6c719d1fd6"


def test_a_form_that_came_back_is_the_form_that_it_was(world: World) -> None:
    """And what a kill left twice is there once."""
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


def test_a_former_form_keeps_its_number_whatever_comes_back(world: World) -> None:
    """OLD is the first form, NEW the second, whichever of them is there."""
    world.publish()
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


def named(world: World, *addresses: str) -> str:
    """Import a response to each address; return the batch."""
    given: dict[str, tuple[datetime | None, dict[str, Any]]] = {
        f"r{n}": (START, answers("a1", "a2", questionnaire=each)) for n, each in enumerate(addresses, 1)
    }
    return carry_over(world, "QuestionnaireResponse", given)


def of_forms(world: World) -> list[tuple[str, str | None]]:
    return world.rows("SELECT resource_id, questionnaire_id FROM questionnaire_response ORDER BY 1")


@pytest.mark.parametrize("url", ["http://chart/Questionnaire/q1", URL])
def test_another_version_than_the_known_one_is_of_the_questionnaire_where_nothing_was_replaced(
    world: World, url: str
) -> None:
    world.questionnaires = [OLD | {"url": url, "version": "2"}]
    named(world, f"{url}|1", f"{url}|2", url)
    assert world.publish().remarks == []
    assert of_forms(world) == [(f"id-r{n}", "q1") for n in (1, 2, 3)]
    assert world.rows("SELECT count(*), sum(value) FROM score") == [(3, 6)]


def test_another_version_of_a_url_that_several_questionnaires_have_is_told(world: World) -> None:
    first, second = ({"id": f"q{n}", "url": URL, "version": str(n)} for n in (1, 2))
    world.questionnaires = [OLD | first, OLD | second]
    named(world, f"{URL}|1", f"{URL}|2", f"{URL}|3")
    done = world.publish()
    assert of_forms(world) == [("id-r1", "q1"), ("id-r2", "q2"), ("id-r3", None)]
    told = "1 response names Mood (q1), and which of its versions was answered is not known: "
    assert done.remarks == [f"response_mood: {told}the answers are in `answer`, and not here."]


def test_a_url_that_reads_as_another_version_of_a_form_doubles_no_response(
    world: World,
) -> None:
    world.questionnaires = [OLD | {"url": URL, "version": "1"}, OLD | {"id": "q2", "url": f"{URL}|"}]
    world.responses = [of_others("theirs", None, questionnaire=f"{URL}|")]
    carry_over(world, "QuestionnaireResponse", {"r1": (START, answers("a1", "a2", questionnaire=f"{URL}|"))})
    world.publish()
    asked = "SELECT response_id, questionnaire_id FROM answer WHERE link_id = 'a1' ORDER BY 1"
    assert world.rows(asked) == [("id-r1", "q2"), ("theirs", "q2")]


def test_a_text_of_others_in_the_place_of_an_id_is_in_no_table_and_no_remark(world: World) -> None:
    replaced(world)
    texts = ("Jane Roe 1970~", "Jane Roe 1971", "q1~1", "q1~", "q-3")
    world.responses = [
        of_others(f"r{n}", START, questionnaire=f"http://c/Questionnaire/{text}") for n, text in enumerate(texts, 1)
    ]
    done = world.publish()
    found = [None, None, None, None, "q-3"]
    assert of_forms(world) == [(f"r{n}", each) for n, each in enumerate(found, 1)]
    assert done.remarks == []
    assert world.rows("SELECT count(*) FROM duckdb_tables() WHERE comment LIKE '%Jane%'") == [(0,)]


def test_contents_of_one_version_are_told_apart_by_what_the_run_checked(world: World) -> None:
    about = {"url": URL, "version": "1"}
    world.questionnaires = [OLD | about]
    batch = named(world, f"{URL}|1", URL)
    checked_by(world, batch, OLD | about)
    replaced(world, NEW | about)
    world.publish()
    assert of_forms(world) == [("id-r1", "q1~1"), ("id-r2", "q1~1")]
    checked_by(world, batch, NEW | about)
    world.publish()
    assert of_forms(world) == [("id-r1", "q1"), ("id-r2", "q1")]


@pytest.mark.parametrize(("new", "form_id"), [(NEW, "q1~1"), (OLD, "q1")])
def test_an_address_that_a_questionnaire_had_still_names_it(world: World, new: dict[str, Any], form_id: str) -> None:
    world.questionnaires = [OLD | {"url": URL}]
    checked_by(world, named(world, URL, f"{URL}|7"), OLD | {"url": URL})
    replaced(world, new | {"url": f"{URL}/2"})
    world.publish()
    assert of_forms(world) == [("id-r1", form_id), ("id-r2", form_id)]


@pytest.mark.parametrize(("own", "form_id"), [(1, "q1~1"), (2, "q1")])
def test_a_response_is_of_the_run_that_made_its_record(world: World, own: int, form_id: str) -> None:
    of, batch = ("default", "QuestionnaireResponse"), "answers-0123456789ab"
    world.begin(batch, of=of)
    for run, content in ((1, OLD), (2, NEW)):
        number = world.ledger.start_run(TARGET, batch, feed_hash="f1", rules_version="1")
        if run == own:
            with world.ledger.lease(TARGET) as lease:
                intent = Intent("r1", 1, batch, 2, "h-r1", "f1", "p1", utc_text(START), None)
                world.ledger.intend(lease, *of, [intent])
                world.ledger.settle(TARGET, *of, [Outcome("r1", 1, "created", "id-r1", 201)])
        world.ledger.finish_run(TARGET, batch, number, state="finished", counts={})
        folder = world.home / "batches" / batch / f"run-{run}"
        folder.mkdir(parents=True)
        body = json.dumps({"resourceType": "QuestionnaireResponse"} | answers("a1", "a2"))
        pq.write_table(pa.table({"line": [2], "body": [body]}), folder / "accepted.parquet")
        checked_by(world, batch, content, run=run)
    world.ledger.finish_batch(TARGET, batch, "finished", {})
    replaced(world)
    world.publish()
    assert of_forms(world) == [("id-r1", form_id)]


def test_a_first_content_that_had_changed_before_it_was_kept_is_not_that_of_the_beginning(world: World) -> None:
    """A home of the version before kept no former content: what came before the second is not known."""
    world.read()
    world.responses = [of_others("first", world.time)]
    world.read()
    world.responses = []
    replaced(world)
    world.read()
    (folder_of(world.home, TARGET) / "questionnaires_before.parquet").unlink()
    replaced(world, form("Sad?", "Hungry?"))
    world.responses = [of_others("first", START)]
    world.publish()
    assert of_forms(world) == [("first", None)]


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
