"""The tables show what this target's chart has of our records: what was sent to it, and neither more nor less."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.ledger.former_versions import intend_change, plan_anew
from pipelines.ledger.rows import Intent, Outcome
from tests.support.exports import tasks
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
ON_THE_WAY = ("sending", "in_doubt", "planned")
"""States of changes that the target does not have yet, each of a record of that key. They are intended as the first."""
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
    world: Unpublished,
    of: tuple[str, str],
    generation: int,
    body: dict[str, Any],
    fate: str = "standing",
    keys: tuple[str, ...] = ("k1",),
) -> None:
    """A later file changes these records, and is about to be sent."""
    world.begin(LATER, of=of)
    path = world.home / "batches" / LATER / "run-1"
    path.mkdir(parents=True)
    lines = dict(enumerate(keys, 2))
    write_accepted(path, {line: (key, "h-later", json.dumps(body)) for line, key in lines.items()})
    with world.ledger.lease(TARGET) as lease:
        changes = [(1, Intent(key, generation, LATER, line, "h-later", "f1", "p1")) for line, key in lines.items()]
        intend_change(world.ledger, lease, *of, changes, fate)


def settles(
    world: Unpublished, of: tuple[str, str], generation: int, state: str, name: str | None = None, key: str = "k1"
) -> None:
    world.ledger.settle(TARGET, *of, [Outcome(key, generation, state, name, None)])


def test_a_task_shows_its_change_once_the_target_has_it(world: Unpublished) -> None:
    first = carry_over(world, "Task", {key: (START, task("d1")) for key in ON_THE_WAY})
    intends(world, TASK, 1, task("d2"), keys=ON_THE_WAY)
    for state in ON_THE_WAY[1:]:
        settles(world, TASK, 1, state, key=state)
    world.publish()
    assert world.rows(f"{OWNER} ORDER BY ALL") == [(f"id-{key}", first, "d1") for key in sorted(ON_THE_WAY)]
    for key in ON_THE_WAY:
        settles(world, TASK, 1, "updated", f"id-{key}", key)
    world.publish()
    assert world.rows(f"{OWNER} ORDER BY ALL") == [(f"id-{key}", LATER, "d2") for key in sorted(ON_THE_WAY)]


def test_a_response_is_there_until_the_target_has_the_one_that_supersedes_it(world: Unpublished) -> None:
    carry_over(world, "QuestionnaireResponse", {key: (START, response(2.5)) for key in ON_THE_WAY})
    intends(world, RESPONSE, 2, response(3.5), keys=ON_THE_WAY)
    for state in ON_THE_WAY[1:]:
        settles(world, RESPONSE, 2, state, key=state)
    world.publish()
    assert world.rows(f"{ANSWER} ORDER BY ALL") == [(f"id-{key}", 2.5) for key in sorted(ON_THE_WAY)]
    for key in ON_THE_WAY:
        settles(world, RESPONSE, 2, "superseded", f"new-{key}", key)
    world.publish()
    assert world.rows(f"{ANSWER} ORDER BY ALL") == [(f"new-{key}", 3.5) for key in sorted(ON_THE_WAY)]


def test_a_response_that_was_taken_back_is_not_shown_while_it_is_sent_anew(world: Unpublished) -> None:
    carry_over(world, "QuestionnaireResponse", {"k1": (START, response(2.5))})
    intends(world, RESPONSE, 2, response(3.5), "withdrawn")
    world.publish()
    assert world.rows("SELECT resource_id FROM questionnaire_response") == []


def test_a_task_that_is_gone_from_the_target_is_not_shown_while_it_is_sent_anew(world: Unpublished) -> None:
    first = carry_over(world, "Task", {"k1": (START, task("d1"))})
    world.ledger.reopen_batch(TARGET, first)
    with world.ledger.lease(TARGET) as lease:
        plan_anew(world.ledger, lease, [(*TASK, "k1", 1)], "gone")
    world.publish()
    assert world.rows(OWNER) == []


@pytest.mark.long
def test_a_record_in_doubt_that_a_later_file_updated_shows_the_content_of_that_file(world: Unpublished) -> None:
    """The record keeps the batch and line of the row in doubt."""
    first = carry_over(world, "Task", {"k1": (START, task("d1"))})
    world.ledger.reopen_batch(TARGET, first)
    settles(world, TASK, 1, "in_doubt")
    world.begin(LATER, of=TASK)
    accepts(world, LATER, "run-1", "k1", "h-later", task("d2"))
    with world.ledger.lease(TARGET) as lease:
        world.ledger.intend_again(lease, *TASK, [Intent("k1", 1, LATER, 2, "h-later", "f1", "p1")])
    settles(world, TASK, 1, "updated", "id-k1")
    world.publish()
    assert world.rows(OWNER) == [("id-k1", first, "d2")]


@pytest.mark.long
def test_values_read_by_a_changed_feed_are_not_shown_before_they_were_sent(world: Unpublished) -> None:
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


def test_bodies_sent_to_another_target_are_not_shown(world: Unpublished) -> None:
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


def shown_of_tasks(home: Path) -> tuple[int, str]:
    """The number of rows of `task_at_target`, and the end of its comment."""
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as db:
        [(rows,)] = db.execute("SELECT count(*) FROM task_at_target").fetchall()
        [(comment,)] = db.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'task_at_target'").fetchall()
    return rows, comment.rpartition("import does not. ")[2]


@pytest.mark.publishes("task_at_target")
def test_a_table_of_what_imports_do_not_read_says_when_it_was_read(home: Path, target: Any, asked: Any) -> None:
    """REPORT-03"""
    target.promised = ("batch", "conditional", "searched")
    tasks(home, "k1")
    asked("import")
    assert shown_of_tasks(home) == (0, "Tasks of the target were not read yet.")
    before = datetime.now(UTC)
    asked("reports")
    read = {f"Tasks of the target were last read on {at:%d %B %Y, %H:%M UTC}." for at in (before, datetime.now(UTC))}
    assert shown_of_tasks(home) in {(1, each) for each in read}
    tasks(home, "k2")
    asked("import")
    rows, said = shown_of_tasks(home)
    assert rows == 1
    assert said in read
