"""A questionnaire that the target replaced under its id: answers belong to the form that they were given to."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.ledger.lease import utc_text
from pipelines.ledger.rows import Intent, Outcome
from pipelines.reports.sweep import folder_of
from tests.support.former_forms import (
    NEW,
    OLD,
    URL,
    answers,
    asking,
    checked_by,
    each_of_its_own,
    form,
    named,
    of_forms,
    of_others,
    replaced,
    shown,
)
from tests.support.publishing import START, TARGET, World, carry_over, write_accepted


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with asking(tmp_path) as made:
        yield made


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


@pytest.mark.long
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


def test_another_version_than_the_known_one_is_of_the_questionnaire_where_nothing_was_replaced(world: World) -> None:
    """Whether or not its URL is its address at the target."""
    urls = ("http://chart/Questionnaire/q1", URL)
    world.questionnaires = [
        each | {"url": url, "version": "2"} for each, url in zip(each_of_its_own([OLD] * 2), urls, strict=True)
    ]
    named(world, *(name for url in urls for name in (f"{url}|1", f"{url}|2", url)))
    assert world.publish().remarks == []
    assert of_forms(world) == [(f"id-r{n}", "q1" if n < 4 else "q2") for n in range(1, 7)]
    assert world.rows("SELECT count(*), sum(value) FROM score") == [(6, 12)]


@pytest.mark.long
def test_a_response_to_an_unknown_version_of_a_shared_url_is_counted_in_a_remark(world: World) -> None:
    first, second = ({"id": f"q{n}", "url": URL, "version": str(n)} for n in (1, 2))
    world.questionnaires = [OLD | first, OLD | second]
    named(world, f"{URL}|1", f"{URL}|2", f"{URL}|3")
    done = world.publish()
    assert of_forms(world) == [("id-r1", "q1"), ("id-r2", "q2"), ("id-r3", None)]
    told = "1 response names Mood (q1), and which of its versions was answered is not known: "
    assert done.remarks == [f"response_mood: {told}the answers are in `answer`, and not here."]


@pytest.mark.long
def test_a_url_that_reads_as_another_version_of_a_form_doubles_no_response(
    world: World,
) -> None:
    world.questionnaires = [OLD | {"url": URL, "version": "1"}, OLD | {"id": "q2", "url": f"{URL}|"}]
    world.responses = [of_others(name, None, questionnaire=f"{URL}|") for name in ("id-r1", "theirs")]
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


@pytest.mark.long
def test_two_contents_of_one_version_are_distinguished_by_the_manifest_of_the_run(world: World) -> None:
    about = {"url": URL, "version": "1"}
    world.questionnaires = [OLD | about]
    for content, number in ((OLD, "0123456789ab"), (NEW, "ffffffffffff")):
        names = {f"{number[0]}-{name}": name for name in (f"{URL}|1", URL)}
        given = {key: (START, answers("a1", "a2", questionnaire=name)) for key, name in names.items()}
        checked_by(world, carry_over(world, "QuestionnaireResponse", dict(given), number), content | about)
    replaced(world, NEW | about)
    world.publish()
    by_content = Counter((name.split("-")[1], form_id) for name, form_id in of_forms(world))
    assert by_content == {("0", "q1~1"): 2, ("f", "q1"): 2}


@pytest.mark.long
def test_a_former_url_of_a_questionnaire_still_identifies_it(world: World) -> None:
    """Whether or not the questionnaire changed with its URL."""
    urls = (f"{URL}/a", f"{URL}/b")
    world.questionnaires = [each | {"url": url} for each, url in zip(each_of_its_own([OLD] * 2), urls, strict=True)]
    batch = named(world, *(name for url in urls for name in (url, f"{url}|7")))
    checked_by(world, batch, *world.questionnaires)
    world.read()
    world.time += timedelta(days=1)
    world.questionnaires = [
        each | {"url": f"{url}/2"} for each, url in zip(each_of_its_own([NEW, OLD]), urls, strict=True)
    ]
    world.publish()
    assert of_forms(world) == [(f"id-r{n}", "q1~1" if n < 3 else "q2") for n in range(1, 5)]


@pytest.mark.long
def test_a_response_is_of_the_run_that_made_its_record(world: World) -> None:
    of, batch = ("default", "QuestionnaireResponse"), "answers-0123456789ab"
    world.begin(batch, of=of)
    for run, content in ((1, OLD), (2, NEW)):
        number = world.ledger.start_run(TARGET, batch, feed_hash="f1", rules_version="1")
        key = f"r{run}"
        with world.ledger.lease(TARGET) as lease:
            intent = Intent(key, 1, batch, run + 1, f"h-{key}", "f1", "p1", utc_text(START), None)
            world.ledger.intend(lease, *of, [intent])
            world.ledger.settle(TARGET, *of, [Outcome(key, 1, "created", f"id-{key}", 201)])
        world.ledger.finish_run(TARGET, batch, number, state="finished", counts={})
        folder = world.home / "batches" / batch / f"run-{run}"
        folder.mkdir(parents=True)
        body = json.dumps({"resourceType": "QuestionnaireResponse"} | answers("a1", "a2"))
        write_accepted(folder, {line: (f"r{line - 1}", f"h-r{line - 1}", body) for line in (2, 3)})
        checked_by(world, batch, content, run=run)
    world.ledger.finish_batch(TARGET, batch, "finished", {})
    replaced(world)
    world.publish()
    assert of_forms(world) == [("id-r1", "q1~1"), ("id-r2", "q1")]


@pytest.mark.long
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
