"""Lanes over several files: what waits behind a doubt, or behind a run that was killed, waits in every file."""

import json
import os
from datetime import UTC, datetime

import pytest
from sqlalchemy import event

from pipelines.dagster.stages.validating import validate_all
from pipelines.loading.held_lanes import HeldLanes
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.posting import post
from pipelines.receiving.stage import receive
from pipelines.session.opening import open_session

HEAD = "payment_id,patient_id,amount,paid_on,claim_id\n"
FIRST = HEAD + "a,p1,10.00,2026-03-01,\nb,p1,20.00,2026-03-02,\nx,p2,1.00,2026-03-01,\n"
SECOND = HEAD + "b,p1,25.00,2026-03-02,\nc,p1,70.00,2026-03-03,\ny,p2,2.00,2026-03-02,\n"


@pytest.fixture
def put(home):
    def write(name, text):
        path = home.parent / name
        path.write_text(text)
        return path

    return write


def amounts(target, patient):
    there = target.of("PaymentNotice")
    return [body["amount"]["value"] for body in there if body["request"]["reference"] == f"Patient/{patient}"]


def closes(batch):
    counts = batch["counts"]
    outcomes = "created adopted unchanged updated superseded skipped refused in_doubt".split()
    assert counts["records"] == counts["accepted"] + counts["rejected"]
    assert counts["accepted"] == sum(counts[name] for name in outcomes) + batch["waiting"]


def test_a_doubt_of_an_earlier_file_holds_its_lane(asked, put, target):
    """LEDGER-05: nothing behind it is judged or sent; other patients go on; afterwards the first file decides first."""
    target.additions = False
    target.faults, target.faulty = ["lost_before"], lambda body: body["request"]["reference"] == "Patient/p1"
    first, second = put("payments-1.csv", FIRST), put("payments-2.csv", SECOND)
    [one] = asked("import", first)["batches"]
    assert (one["counts"]["in_doubt"], one["waiting"], one["state"]) == (1, 1, "running")
    said = asked("import", second)
    [two] = said["batches"]
    assert (said["exit_code"], two["state"], two["waiting"], two["counts"]["rejected"]) == (5, "running", 2, 0)
    assert two["waits_for"] == [one["batch_id"]]
    assert one["batch_id"] in two["message"]
    closes(two)
    assert (amounts(target, "p1"), amounts(target, "p2")) == ([], [1, 2])
    target.create(json.loads(body_of("a", 10, "2026-03-01")))
    asked("import")
    assert amounts(target, "p1") == [10, 20, 70]
    assert asked("import")["exit_code"] == 0


def body_of(key, amount, day):
    return json.dumps(
        {
            "resourceType": "PaymentNotice",
            "status": "active",
            "request": {"reference": "Patient/p1"},
            "amount": {"value": amount, "currency": "USD"},
            "payment": {},
            "recipient": {},
        }
    )


def test_a_run_that_was_killed_holds_the_lanes_of_rows_it_did_not_reach(asked, chartferry, put, target, monkeypatch):
    """LEDGER-05: the second file, imported alone, does not overtake the first."""
    target.additions = False
    first, second = put("payments-1.csv", FIRST), put("payments-2.csv", SECOND)
    sent = list[str]()

    def killed(client, resource, row, **named):
        if sent:
            raise KeyboardInterrupt
        sent.append(row.key)
        return post(client, resource, row, **named)

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.loading.posting.post", killed)
        assert chartferry("import", first)[0] == 130
    before = sorted(amounts(target, "p1") + amounts(target, "p2"))
    [two] = asked("import", second)["batches"]
    closes(two)
    assert two["waiting"]
    assert 70 not in amounts(target, "p1")
    assert 25 not in amounts(target, "p1")
    assert len(before) == 1


@pytest.mark.long
def test_the_lanes_that_other_batches_hold_are_found_by_one_query(home, target):
    """A run of many small files validates all of them before it loads the first."""
    statements = []
    with open_session(home, os.environ) as session:
        feed = session.catalog.named("payments")
        assert feed
        received = []
        for number in range(6):
            path = home / "inbox" / f"payments-{number}.csv"
            path.write_text(HEAD + f"h{number},p{number},1.00,2026-03-01,\n")
            received.append(receive(path, feed, home))
        event.listen(session.ledger.engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
        for several in (2, 6):
            names = [each.batch_id for each in received[:several]]
            validate_all(session, feed, names, datetime.now(UTC))
            statements.clear()
            batch = BatchRun(session.target, names[0], feed, home / "batches" / names[0] / "run-1", resuming=False)
            assert not HeldLanes(batch, session.ledger, safe=True)
            assert len([each for each in statements if each.startswith("SELECT")]) == 1
