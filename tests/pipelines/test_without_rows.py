"""A lost ledger gets records back whose rows are purged, or rejected by their feed by now: what runs left on record."""

import json
import sqlite3
from contextlib import closing

import pytest

from pipelines.exits import SET_ASIDE
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import OUTCOMES
from pipelines.pipeline import validate_run
from tests.pipelines.fake_target import Said, outcome
from tests.pipelines.test_adopt import ANSWERS, both, records, yesterday
from tests.pipelines.test_behind import messages
from tests.pipelines.test_decisions import payments, put, tasks
from tests.pipelines.test_outcomes import changing, killed
from tests.pipelines.test_verify import QUESTIONS, lose_ledger


@pytest.fixture(autouse=True)
def without_publishing(monkeypatch):
    monkeypatch.setattr("pipelines.importing.publish_into", lambda *_: None)
    monkeypatch.setattr("pipelines.retrying.publish_into", lambda *_: None)


def table(home, name):
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        return ledger.tables()[name].to_pylist()


def came_to(found):
    return {name: found["totals"][name] for name in (*OUTCOMES, "rejected", "waiting") if found["totals"][name]}


def of_batch(home, batch):
    """Batch and runs but for the moments at which the ledger itself wrote them down."""
    rows = [*table(home, "batch"), *table(home, "run")]
    moments = ("received_at", "finished_at")
    return [{name: row[name] for name in row if name not in moments} for row in rows if row["batch_id"] == batch]


def copying_in_a_run(home, monkeypatch):
    """The ledger will be copied when the next run has read its file: where to."""
    older = home.parent / "older.db"

    def copying(*arguments):
        with closing(sqlite3.connect(home / "ledger.db")) as ledger:
            ledger.execute("VACUUM INTO ?", [str(older)])
        return validate_run(*arguments)

    monkeypatch.setattr("pipelines.pipeline.validate_run", copying)
    return older


# -- purged


@both
def test_a_later_file_makes_nothing_anew_of_what_was_purged(home, target, asked, chartferry, additions):
    """CLI-CMD-16, CLI-CMD-17, LEDGER-01"""
    target.additions = additions
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    before = of_batch(home, batch)
    lose_ledger(home)
    payments(home, ("k1", "p1", "1.00"), ("k3", "p1", "1.00"), name="payments-b.csv")
    if not additions:
        assert f"since {batch} was loaded before" in messages(asked("import"))[0]
        assert len(target.of("PaymentNotice")) == 2
    assert asked("verify")["lost"] == [batch]
    assert "2 records known again by what is on record of them" in chartferry("verify", "--adopt")[1]
    assert "the ledger knows every batch of this home" in chartferry("verify", "--adopt")[1]
    assert of_batch(home, batch) == before
    found = asked("import")
    assert (found["totals"]["unchanged"], found["totals"]["created"]) == (1, 1)
    assert len(target.of("PaymentNotice")) == 3
    verified = asked("verify")
    assert (verified["differences"], verified["lost"]) == ([], [])
    assert verified["target_cents"] == verified["ledger_cents"] == 400


@both
def test_tasks_that_were_taken_back_and_purged_are_known_as_that(home, target, asked, chartferry, additions):
    """CLI-CMD-17, CLI-CMD-22"""
    target.additions = additions
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    chartferry("purge", batch)
    lose_ledger(home)
    assert asked("verify", "--adopt")["without_rows"] == {batch: 2}
    assert {state for state, _ in records(home).values()} == {"undone"}


@both
def test_an_older_file_that_was_purged_brings_nothing_back(home, target, asked, chartferry, additions):
    """CLI-CMD-17, LEDGER-08: as with the ledger that was lost."""
    target.additions = additions
    changing(home, "tasks", "tasks", "task_id,patient_id,description,status,requester_id", "update")
    for text in ("call", "mail"):
        tasks(home, "k1", "k2", text=text)
        chartferry("purge", asked("import")["batches"][0]["batch_id"])
    lose_ledger(home)
    asked("verify", "--adopt")
    tasks(home, "k1", "k2", text="call")
    assert asked("import")["totals"]["skipped"] == 2
    assert {body["description"] for body in target.of("Task")} == {"mail k1", "mail k2"}


@both
def test_a_purged_file_of_which_a_row_was_refused_and_made_by_a_later_one_brings_nothing_back(
    home, target, asked, chartferry, additions
):
    """CLI-CMD-17, LEDGER-08"""
    target.additions = additions
    changing(home, "tasks", "tasks", "task_id,patient_id,description,status,requester_id", "update")
    target.refuse = lambda body: body["description"] == "call k1"
    tasks(home, "k1", text="call")
    batch = asked("import")["batches"][0]["batch_id"]
    target.refuse = lambda _: False
    tasks(home, "k1", text="mail")
    asked("import")
    assert chartferry("purge", batch)[0] == 0
    lose_ledger(home)
    asked("verify", "--adopt")
    tasks(home, "k1", text="call")
    assert asked("import")["totals"]["skipped"] == 1
    assert [body["description"] for body in target.of("Task")] == ["mail k1"]


def test_what_a_copy_knows_as_planned_was_made_since_and_is_purged(home, target, asked, chartferry):
    """LEDGER-01: a run of which the copy knows nothing made it."""
    target.additions, target.faults = False, [Said(401, outcome("unknown"))] * 40
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    put_back = yesterday(home)
    target.faults = []
    target.valid_tokens.add("fixed")
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    put_back()
    assert asked("verify", "--adopt")["without_rows"] == {batch: 1}
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), name="payments-b.csv")
    asked("import")
    assert len(target.of("PaymentNotice")) == 2
    assert asked("verify")["differences"] == []


def test_a_copy_of_the_time_when_the_run_of_a_purged_batch_was_under_way(home, target, asked, chartferry, monkeypatch):
    """LEDGER-01: the run is known, and its end is not."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    older = copying_in_a_run(home, monkeypatch)
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    lose_ledger(home)
    older.rename(home / "ledger.db")
    assert asked("verify", "--adopt")["without_rows"] == {batch: 2}
    assert "the ledger knows every batch of this home" in chartferry("verify", "--adopt")[1]
    payments(home, ("k1", "p1", "1.00"), ("k3", "p1", "3.00"), name="payments-b.csv")
    assert asked("import")["totals"]["created"] == 1
    assert len(target.of("PaymentNotice")) == 3


@pytest.mark.parametrize("said", ["{}", "[", '{"target": "x", "started_at": "y"}'])
def test_a_purged_batch_whose_runs_are_not_told_any_more_holds_nothing_up(home, target, asked, chartferry, said):
    """CLI-CMD-17: nothing can be found out of it, which is said."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    (home / "batches" / batch / "run-1" / "manifest.json").write_text(said)
    lose_ledger(home)
    adopted = asked("verify", "--adopt")
    assert (adopted["without_rows"], list(adopted["left"]), adopted["exit_code"]) == ({}, [batch], SET_ASIDE)
    payments(home, ("k2", "p1", "2.00"), name="payments-b.csv")
    assert asked("import")["totals"]["created"] == 1


def test_a_manifest_that_says_little_is_enough_to_know_what_was_made(home, target, asked, chartferry):
    """CLI-CMD-17"""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    path = home / "batches" / batch / "run-1" / "manifest.json"
    kept = ("target", "started_at", "source", "resource", "feed_hash")
    said = {name: value for name, value in json.loads(path.read_bytes()).items() if name in kept}
    path.write_text(json.dumps(said))
    (home / "batches" / batch / "sha256").unlink()
    lose_ledger(home)
    assert asked("verify", "--adopt")["without_rows"] == {batch: 1}
    payments(home, ("k1", "p1", "1.00"), name="payments-b.csv")
    asked("import")
    assert len(target.of("PaymentNotice")) == 1


def test_a_purged_batch_that_made_more_than_is_on_record_is_named(home, target, asked, chartferry):
    """CLI-CMD-17: a person looks into the chart before a file brings these rows again."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    (home / "batches" / batch / "run-1" / "outcomes.ndjson").unlink()
    lose_ledger(home)
    adopted = asked("verify", "--adopt")
    assert "of 2 rows that it made, 0 are on record" in adopted["left"][batch]
    assert adopted["exit_code"] == SET_ASIDE
    assert asked("verify", "--adopt")["left"] == {}


UNTOLD = ({"resource": None}, {"source": ["a"]}, {"started_at": "2026-13-45"}, {"target": "\ud800"})
LESS = ({"counts": {"created": 10**30}}, {"message": "\ud800"}, {"ended_at": "y"}, {"file": "\\u0000"}, {"state": 7})


@pytest.mark.parametrize("damage", [*UNTOLD, *LESS], ids=str)
def test_a_damaged_manifest_ends_no_command_with_a_fault(home, target, asked, chartferry, damage):
    """CLI-CMD-17, STATE-HOME-07: what it still tells is enough, or the batch is named."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    path = home / "batches" / batch / "run-1" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **damage}))
    lose_ledger(home)
    adopted = asked("verify", "--adopt")
    assert (adopted["without_rows"], list(adopted["left"])) == (({}, [batch]) if damage in UNTOLD else ({batch: 1}, []))
    payments(home, ("k2", "p1", "2.00"), name="payments-b.csv")
    assert came_to(asked("import")) == {"created": 1}


@both
def test_a_purged_batch_of_which_one_run_is_not_told_any_more_is_named(home, target, asked, chartferry, additions):
    """CLI-CMD-17"""
    target.additions, target.refuse = additions, lambda body: body["amount"]["value"] == 2.0
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    target.refuse = lambda _: False
    asked("rejects", "retry")
    chartferry("purge", batch)
    (home / "batches" / batch / "run-2" / "manifest.json").write_text("{")
    lose_ledger(home)
    assert "what 1 of its runs did is not told any more" in asked("verify", "--adopt")["left"][batch]
    assert asked("verify", "--adopt")["left"] == {}


@both
def test_what_was_taken_back_and_made_anew_is_all_on_record(home, target, asked, chartferry, additions):
    """CLI-CMD-17, CLI-CMD-22"""
    target.additions = additions
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    asked("import", "--again", batch)
    before = records(home)
    chartferry("purge", batch)
    lose_ledger(home)
    assert asked("verify", "--adopt")["left"] == {}
    assert {made for _, made in records(home).values()} == {made for _, made in before.values()}


@both
def test_a_change_that_a_copy_has_in_doubt_and_another_since(home, target, asked, chartferry, additions):
    """LEDGER-01, LEDGER-08: the newest is what the record says."""
    target.additions = additions
    changing(home, "tasks", "tasks", "task_id,patient_id,description,status,requester_id", "update")
    batches = []
    for text in ("A", "B", "C"):
        target.put_faults = ["lost_before"] * 20 if text == "B" else []
        tasks(home, "k1", text=text)
        batches.append(asked("import")["batches"][-1]["batch_id"])
        if text == "B":
            put_back = yesterday(home)
            target.put_faults = []
            asked("import")
    for batch in batches:
        chartferry("purge", batch)
    put_back()
    asked("verify", "--adopt")
    for text in ("C", "B"):
        tasks(home, "k1", text=text)
        asked("import")
        assert [body["description"] for body in target.of("Task")] == ["C k1"]


@pytest.mark.parametrize("step", ["restore_records", "note_others", "restore_batch"])
def test_who_is_killed_while_records_are_restored_restores_them_the_next_time(
    home, target, asked, chartferry, monkeypatch, step
):
    """CLI-CMD-17, LEDGER-01"""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    lose_ledger(home)
    with monkeypatch.context() as patched:
        patched.setattr(f"pipelines.verifying.adopting.{step}", killed)
        chartferry("verify", "--adopt")
    asked("verify", "--adopt")
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), name="payments-b.csv")
    assert came_to(asked("import")) == {"created": 1, "unchanged": 1}
    assert len(target.of("PaymentNotice")) == 2


@both
@pytest.mark.parametrize("policy", ["update", "supersede"])
def test_what_a_copy_knows_as_it_was_before_a_purged_file_changed_it(
    home, target, asked, chartferry, additions, policy
):
    """LEDGER-01, LEDGER-08"""
    target.additions, target.stored["q1"] = additions, QUESTIONS
    columns = ANSWERS if policy == "supersede" else "task_id,patient_id,description,status,requester_id"
    changing(home, "file", "answers" if policy == "supersede" else "tasks", columns, policy)

    def put_in(name, said):
        row = f"k1,p1,q1,1,{said}" if policy == "supersede" else f"k1,p1,{said},requested,a"
        put(home, name, f"{columns.strip()}\n{row}\n")
        return asked("import")

    put_in("file-1.csv", "yes")
    put_back = yesterday(home)
    chartferry("purge", put_in("file-2.csv", "no")["batches"][0]["batch_id"])
    before = len(target.stored)
    put_back()
    asked("verify", "--adopt")
    assert came_to(put_in("file-3.csv", "no")) == {"unchanged": 1}
    assert len(target.stored) == before
    assert asked("verify")["differences"] == []


@pytest.mark.parametrize("command", ["resolve", "accept"])
def test_a_doubt_that_was_settled_and_is_purged_comes_back_as_settled(home, target, asked, chartferry, command):
    """CLI-CMD-08, CLI-CMD-17"""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    target.create({"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}})
    [made] = target.stored
    asked("doubts", command, *((f"{batch}:2", "--resource", f"PaymentNotice/{made}") if command == "accept" else ()))
    asked("import")
    assert chartferry("purge", batch)[0] == 0
    lose_ledger(home)
    asked("verify", "--adopt")
    assert records(home)["k1"] == ("adopted", made)
    payments(home, ("k1", "p1", "1.00"), ("k3", "p1", "3.00"), name="payments-b.csv")
    assert came_to(asked("import")) == {"created": 1, "unchanged": 1}


def test_a_doubt_of_a_copy_that_was_settled_since_and_is_purged_is_settled_again(home, target, asked, chartferry):
    """CLI-CMD-08, CLI-CMD-17"""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    put_back = yesterday(home)
    target.create({"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}})
    asked("doubts", "resolve")
    chartferry("purge", batch)
    put_back()
    assert asked("verify", "--adopt")["without_rows"] == {batch: 1}
    assert records(home) == {"k1": ("adopted", *target.stored)}


# -- rejected by now


@pytest.fixture
def other_amounts(home):
    """A feed that reads amounts from a column that has none of them by now, and what puts it right."""
    changing(home, "payments", "payments", "payment_id,patient_id,amount,paid_on,claim_id", "reject")
    feed = home / "feeds" / "payments.toml"
    right = feed.read_text()

    def to(column):
        feed.write_text(right.replace('amount = "amount"', f'amount = "{column}"'))

    return to


@both
def test_what_its_feed_rejects_by_now_is_not_made_again(home, target, asked, other_amounts, additions):
    """CLI-CMD-17, LEDGER-01: its reject is closed, since the record is there."""
    target.additions = additions
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    other_amounts("claim_id")
    lose_ledger(home)
    assert asked("verify", "--adopt")["without_rows"] == {batch: 2}
    assert {row["state"] for row in table(home, "reject")} == {"closed"}
    [kept] = table(home, "batch")
    assert (kept["state"], kept["accepted"], kept["rejected"], kept["adopted"]) == ("finished", 2, 0, 2)
    other_amounts("amount")
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "3.00"), ("k3", "p1", "1.00"), name="payments-b.csv")
    found = asked("import")
    assert (found["totals"]["unchanged"], found["totals"]["created"], found["totals"]["rejected"]) == (1, 1, 1)
    assert len(target.of("PaymentNotice")) == 3
    assert asked("verify")["differences"] == []


def test_what_was_in_doubt_and_its_feed_rejects_by_now_is_in_doubt(home, target, asked, other_amounts):
    """CLI-CMD-08, CLI-CMD-17: it may have arrived."""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    other_amounts("claim_id")
    lose_ledger(home)
    assert asked("verify", "--adopt")["without_rows"] == {batch: 1}
    assert records(home) == {"k1": ("in_doubt", None)}
    other_amounts("amount")
    payments(home, ("k1", "p1", "1.00"), name="payments-b.csv")
    asked("import", str(home / "inbox" / "payments-b.csv"))
    assert target.of("PaymentNotice") == []
    assert asked("doubts", "resolve")["left"] == {f"{batch}:2": "the target does not have it"}


def test_a_batch_of_which_rows_wait_goes_on_though_others_are_rejected_by_now(home, target, asked, other_amounts):
    """CLI-CMD-17, LEDGER-02: as many known again as wait are no reason to take it for finished."""
    target.additions = False
    rows = "k1,p1,1.00,2026-03-01,\nk2,p1,2.00,2026-03-02,3.00\n"  # one patient: k1 is sent first
    target.faults = [None, *[Said(401, outcome("unknown"))] * 40]
    put(home, "payments.csv", f"payment_id,patient_id,amount,paid_on,claim_id\n{rows}")
    batch = asked("import")["batches"][0]["batch_id"]
    target.faults = []
    target.valid_tokens.add("fixed")
    made = len(target.of("PaymentNotice"))
    other_amounts("claim_id")
    lose_ledger(home)
    asked("verify", "--adopt")
    assert made == 1
    [kept] = table(home, "batch")
    assert (kept["batch_id"], kept["state"]) == (batch, "running")
