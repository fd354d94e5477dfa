"""The tables show what this target's chart has of our records: what was sent to it, and neither more nor less."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.ledger.former import intend_change, plan_anew
from pipelines.ledger.rows import Intent, Outcome
from tests.support.publishing import (
    BATCH,
    OF,
    START,
    TARGET,
    Unpublished,
    carry_over,
    payment,
    publish_only,
    unpublished,
    write_accepted,
)

TASK, RESPONSE = ("default", "Task"), ("default", "QuestionnaireResponse")
LATER = "later-fedcba987654"
OWNER, ANSWER = "SELECT resource_id, batch_id, owner_id FROM task", "SELECT response_id, number FROM answer"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unpublished]:
    publish_only(monkeypatch, "task", "payment", "answer")
    with unpublished(tmp_path) as made:
        yield made


def task(owner: str) -> dict[str, Any]:
    return {"resourceType": "Task", "status": "requested", "owner": {"reference": f"Practitioner/{owner}"}}


def response(number: float) -> dict[str, Any]:
    item = [{"linkId": "packs", "answer": [{"valueDecimal": number}]}]
    return {"resourceType": "QuestionnaireResponse", "questionnaire": "Questionnaire/q1", "item": item}


def accepts(world: Unpublished, batch: str, folder: str, key: str, said: str, body: dict[str, Any]) -> Path:
    """A run of a batch made a row of its line 2 ready to send."""
    path = world.home / "batches" / batch / folder
    path.mkdir(parents=True)
    write_accepted(path, {2: (key, said, json.dumps(body))})
    return path


def intends(
    world: Unpublished, of: tuple[str, str], generation: int, body: dict[str, Any], fate: str = "standing"
) -> None:
    """A later file changes the record k1, and is about to be sent."""
    world.begin(LATER, of=of)
    accepts(world, LATER, "run-1", "k1", "h-later", body)
    with world.ledger.lease(TARGET) as lease:
        change = (1, Intent("k1", generation, LATER, 2, "h-later", "f1", "p1"))
        intend_change(world.ledger, lease, *of, [change], fate)


def settles(world: Unpublished, of: tuple[str, str], generation: int, state: str, name: str | None = None) -> None:
    world.ledger.settle(TARGET, *of, [Outcome("k1", generation, state, name, None)])


@pytest.mark.parametrize("state", ["sending", "in_doubt", "planned"])
def test_a_task_shows_its_change_once_the_target_has_it(world: Unpublished, state: str) -> None:
    first = carry_over(world, "Task", {"k1": (START, task("d1"))})
    intends(world, TASK, 1, task("d2"))
    if state != "sending":
        settles(world, TASK, 1, state)
    world.publish()
    assert world.rows(OWNER) == [("id-k1", first, "d1")]
    settles(world, TASK, 1, "updated", "id-k1")
    world.publish()
    assert world.rows(OWNER) == [("id-k1", LATER, "d2")]


@pytest.mark.parametrize("state", ["sending", "in_doubt", "planned"])
def test_a_response_is_there_until_the_target_has_the_one_that_supersedes_it(world: Unpublished, state: str) -> None:
    carry_over(world, "QuestionnaireResponse", {"k1": (START, response(2.5))})
    intends(world, RESPONSE, 2, response(3.5))
    if state != "sending":
        settles(world, RESPONSE, 2, state)
    world.publish()
    assert world.rows(ANSWER) == [("id-k1", 2.5)]
    settles(world, RESPONSE, 2, "superseded", "id-new")
    world.publish()
    assert world.rows(ANSWER) == [("id-new", 3.5)]


def test_what_was_taken_back_is_not_there_while_it_is_sent_anew(world: Unpublished) -> None:
    carry_over(world, "QuestionnaireResponse", {"k1": (START, response(2.5))})
    intends(world, RESPONSE, 2, response(3.5), "withdrawn")
    world.publish()
    assert world.rows("SELECT resource_id FROM questionnaire_response") == []


def test_what_is_gone_from_the_target_is_not_there_while_it_is_sent_anew(world: Unpublished) -> None:
    carry_over(world, "Task", {"k1": (START, task("d1"))})
    with world.ledger.lease(TARGET) as lease:
        plan_anew(world.ledger, lease, [(*TASK, "k1", 1)], "gone")
    world.publish()
    assert world.rows(OWNER) == []


def test_a_row_in_doubt_for_which_a_later_file_was_sent_shows_what_that_said(world: Unpublished) -> None:
    """The record keeps the batch and line of the row in doubt."""
    first = carry_over(world, "Task", {"k1": (START, task("d1"))})
    settles(world, TASK, 1, "in_doubt")
    world.begin(LATER, of=TASK)
    accepts(world, LATER, "run-1", "k1", "h-later", task("d2"))
    with world.ledger.lease(TARGET) as lease:
        world.ledger.intend_again(lease, *TASK, [Intent("k1", 1, LATER, 2, "h-later", "f1", "p1")])
    settles(world, TASK, 1, "updated", "id-k1")
    world.publish()
    assert world.rows(OWNER) == [("id-k1", first, "d2")]


def test_what_a_changed_feed_reads_shows_once_it_was_sent(world: Unpublished) -> None:
    """The same file came again, by a feed that reads another owner, claim and number: nothing was sent."""
    of_task = carry_over(world, "Task", {"k1": (START, task("d1"))})
    of_response = carry_over(world, "QuestionnaireResponse", {"k1": (START, response(2.5))})
    world.begin(BATCH)
    accepts(world, BATCH, "run-1", "k1", "h-k1", {"resourceType": "PaymentNotice"})
    with world.ledger.lease(TARGET) as lease:
        world.ledger.intend(lease, *OF, [payment("k1", 2, 500)])
        settles(world, OF, 1, "created", "id-p1")
    amounts = dict.fromkeys(("amount_received", "amount_accepted", "amount_created"), 500)
    world.run(BATCH, dict.fromkeys(("lines", "records", "accepted", "created"), 1) | amounts)
    claim = {"url": "claim", "valueReference": {"reference": "Claim/c1"}}
    copayment = {"extension": [{"url": "https://example.org/copayment-claims", "extension": [claim]}]}
    again = ((of_task, task("d2")), (of_response, response(9)), (BATCH, copayment))
    for batch, body in again:
        accepts(world, batch, "run-2", "k1", "h-other", body)
    world.publish()
    assert world.rows(OWNER) == [("id-k1", of_task, "d1")]
    assert world.rows(ANSWER) == [("id-k1", 2.5)]
    assert world.rows("SELECT kind, claim_id FROM payment") == [("balance payment", None)]


def test_what_was_sent_to_another_target_does_not_show(world: Unpublished) -> None:
    """Its run of the same file has the same number, and perhaps the same content under another questionnaire."""
    batches = [
        carry_over(world, "Task", {"k1": (START, task("d1"))}),
        carry_over(world, "QuestionnaireResponse", {"k1": (START, response(2.5))}),
    ]
    for batch, body in zip(batches, (task("d2"), response(9)), strict=True):
        folder = accepts(world, batch, "run-1-2", "k1", "h-k1", body)
        about = {"source": "default", "resource": body["resourceType"], "feed_hash": "f1"}
        moment = {"started_at": "2026-03-01T12:00:00.000000Z"}
        (folder / "manifest.json").write_text(json.dumps({"target": "urn:other"} | about | moment))
    world.publish()
    assert world.rows(OWNER) == [("id-k1", batches[0], "d1")]
    assert world.rows(ANSWER) == [("id-k1", 2.5)]
