"""Batches that are not finished, and that a person ends by `undo`."""

import os
from collections import Counter
from unittest.mock import Mock

import pytest

from pipelines.corrections.undo_result import ENDED, UNFINISHED
from pipelines.home.exits import INTERRUPTED
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.standing import next_step
from pipelines.ledger.tables import LedgerError
from pipelines.receiving.stage import receive
from pipelines.reports.attention import ENDED_BY_UNDO as ENDED_SAID
from pipelines.runs.beginning import begin
from pipelines.runs.loading import load_run
from pipelines.runs.run import ENDED_BY_UNDO
from pipelines.runs.validating import validate_run
from pipelines.session.opening import open_session
from pipelines.session.waiting_files import find_files
from tests.support.commands import asked_of_status
from tests.support.exports import ANSWERS, PAYMENTS, QUESTIONS, TASKS, feed_file, let_update, put, tasks
from tests.support.ledgers import read_ledger
from tests.support.publishing import PAGED, words_of


@pytest.fixture
def cut_off(home, target, chartferry, monkeypatch, few_a_bundle):
    """A load of 110 tasks that ends before a call of the ledger, once the target has some: its batch, and how many."""

    def load(call):
        tasks(home, *(f"k{number}" for number in range(110)))
        going_on = getattr(Ledger, call)

        def stopped(ledger, *given, **named):
            if target.of("Task"):
                raise KeyboardInterrupt
            return going_on(ledger, *given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, call, stopped)
            assert chartferry("import")[0] == INTERRUPTED
        [batch] = [row["batch_id"] for row in asked_of_status(chartferry)]
        return batch, len(target.of("Task"))

    return load


@pytest.mark.publishes(*PAGED)
def test_an_undo_ends_a_batch_whose_load_was_cut_off_until_it_is_loaded_again(home, target, asked, chartferry, cut_off):
    """CLI-CMD-10, CLI-CMD-18: all that was there was taken back, and the next import put the rest into the chart."""
    batch, sent = cut_off("intend")
    assert 0 < sent < 110
    for more in (["--dry-run"], []):
        found = asked("undo", batch, *more)
        said = (found["exit_code"], found["taken"], found["not_taken"], found["ended"], found["unfinished"])
        assert said == (0, sent, 0, True, False)
    [row] = asked_of_status(chartferry)
    assert (row["state"], row["created"], row["taken_back"]) == ("stopped", sent, sent)
    remedy = next_step(batch, "stopped", "running", 0)
    assert remedy.startswith(f"chartferry import --again {batch} loads it whole. ")
    assert f"not loaded: {remedy}" in chartferry("status", batch)[1].splitlines()
    assert "tasks.csv tasks ended by undo" in words_of(home, "imports")
    assert f"tasks.csv {ENDED_SAID} {remedy}" in words_of(home, "problems")
    after = asked("import")
    assert (after["batches"], after["not_loaded"]) == ([], [batch])
    tasks(home, *(f"k{number}" for number in range(110)))
    [again] = asked("import")["batches"]
    assert (again["state"], again["message"]) == ("failed", f"{batch}: {ENDED_BY_UNDO.format(batch)}")
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert asked("import", "--again", batch)["totals"]["created"] == 110
    assert Counter(body["status"] for body in target.of("Task")) == {"cancelled": sent, "requested": 110}
    assert asked("verify")["differences"] == []
    assert asked_of_status(chartferry)[0]["state"] == "finished"


def test_no_import_goes_on_with_a_batch_whose_undo_was_cut_off(home, target, asked, chartferry, cut_off, monkeypatch):
    """CLI-CMD-10: the batch ends before the first resource is taken back."""
    batch, sent = cut_off("intend")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.corrections.undo.undone", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("undo", batch)[0] == INTERRUPTED
    asked("import")
    assert len(target.of("Task")) == sent
    assert asked("undo", batch)["exit_code"] == 0
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}


def test_a_batch_that_undo_ended_before_a_row_was_sent_loads_again(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-18: nothing of it was taken back, and `--again` said that there was nothing to load."""
    tasks(home, "k1", "k2")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "intend", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import")[0] == INTERRUPTED
    [batch] = [row["batch_id"] for row in asked_of_status(chartferry)]
    code, out, _ = chartferry("undo", batch)
    assert (code, ENDED in out) == (0, True)
    assert (asked("import")["batches"], target.of("Task")) == ([], [])
    assert asked("import", "--again", batch)["totals"]["created"] == 2


def test_an_undo_of_a_batch_that_was_being_loaded_again_leaves_it_taken_back(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10, CLI-CMD-18: the load was cut off before a row was sent."""
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    before = records_of(home)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.loading.load", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import", "--again", batch)[0] == INTERRUPTED
    assert records_of(home) != before
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["ended"]) == (0, 0, True)
    assert records_of(home) == before
    assert asked("import", "--again", batch)["totals"]["created"] == 2
    assert asked("verify")["differences"] == []


def test_import_again_of_an_interrupted_batch_leaves_changes_of_a_later_file(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-18: the newest file has the last word, also about rows that the older one had never sent."""
    let_update(home)
    tasks(home, "k1", "k2")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "intend", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import")[0] == INTERRUPTED
    [batch] = [row["batch_id"] for row in asked_of_status(chartferry)]
    asked("undo", batch)
    put(home, "tasks-2.csv", TASKS + "k1,p1,call back,requested,a\n")
    asked("import")
    again = asked("import", "--again", batch)["totals"]
    assert (again["created"], again["skipped"]) == (1, 1)
    assert sorted(body["description"] for body in target.of("Task")) == ["call back", "call k2"]
    assert asked("verify")["counts"] == {}


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "not-there"])
def test_an_undo_looks_up_the_rows_that_an_interrupted_load_left_in_doubt(
    home, target, asked, chartferry, cut_off, is_there
):
    """CLI-CMD-10: rows that are there are taken back, and the others are not sent."""
    batch, sent = cut_off("settle")
    if not is_there:
        for name in list(target.stored):
            target.lose(name)
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["ended"]) == (0, sent if is_there else 0, True)
    [row] = asked_of_status(chartferry)
    assert (row["lines"], row["records"], row["accepted"]) == (111, 110, 110)
    assert asked("import")["batches"] == []
    assert {body["status"] for body in target.of("Task")} <= {"cancelled"}
    assert asked("import", "--again", batch)["totals"]["created"] == 110
    assert asked("verify")["differences"] == []


def test_a_batch_with_a_row_that_stays_in_doubt_goes_on_and_undo_says_so(home, target, asked, chartferry, cut_off):
    """CLI-CMD-10: a bare target that lacks the rows is asked again only after the settling time."""
    target.additions = False
    batch, _ = cut_off("settle")
    for name in list(target.stored):
        target.lose(name)
    found = asked("undo", batch)
    assert (found["exit_code"], found["ended"], found["unfinished"]) == (3, False, True)
    assert set(found["left"].values()) == {"in doubt"}
    assert UNFINISHED in chartferry("undo", batch)[1]
    assert asked_of_status(chartferry)[0]["state"] == "running"


def test_undo_of_an_interrupted_file_restores_the_records_that_it_was_about_to_replace(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10: answers that the file was to supersede, to load again after an undo, or to send first."""
    target.stored["q1"] = QUESTIONS
    says = 'kind = "answers"\nfiles = ["answers*.csv"]\nchanged = "supersede"\n'
    feed_file(home, "answers", says, ANSWERS)

    def answers(name, *said):
        put(home, name, ANSWERS + "".join(f"r{number},p1,q1,1,{each}\n" for number, each in said))

    answers("answers-1.csv", (1, "one"))
    asked("import")
    answers("answers-2.csv", (2, "one"))
    asked("undo", asked("import")["batches"][0]["batch_id"])
    before = records_of(home)
    answers("answers-3.csv", (1, "two"), (2, "two"), (3, "two"))
    there = set(target.stored)

    def lost(*given, **named):
        for name in set(target.stored) - there:
            target.lose(name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "settle", lost)
        assert chartferry("import")[0] == INTERRUPTED
    assert len(records_of(home)) == 3
    [batch] = [row["batch_id"] for row in asked_of_status(chartferry) if row["file_name"] == "answers-3.csv"]
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["ended"]) == (0, 0, True)
    assert records_of(home) == before
    assert asked("verify")["differences"] == []
    assert asked("import", "--again", batch)["totals"]["created"] == 2
    assert asked("verify")["differences"] == []


def test_a_run_that_began_before_its_batch_was_taken_back_sends_nothing(home, target, asked):
    """CLI-CMD-10: a load that waits for the target while a person takes its batch back."""
    tasks(home, "k1")
    with open_session(home, os.environ) as session:
        [waiting], _ = find_files([home / "inbox"], session.catalog)
        received = receive(waiting.path, waiting.feed, home, inbox=session.inbox, batches=session.batches)
        run_of_it = begin(session, received, waiting.feed)
        validated = validate_run(session, run_of_it)
        assert asked("undo", received.batch_id)["ended"]
        with pytest.raises(LedgerError, match=f"undo ended it.*--again {received.batch_id}"):
            load_run(session, run_of_it, validated)
    assert target.of("Task") == []


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "not-there"])
def test_a_change_in_doubt_is_settled_by_its_task_and_its_batch_ended_by_undo(
    home, target, asked, chartferry, monkeypatch, is_there
):
    """CLI-CMD-09, CLI-CMD-10: the batch went on, since only an import looked at the task."""
    let_update(home)
    tasks(home, "k1")
    asked("import")
    target.put_faults = ["lost_before"] * 10
    put(home, "tasks-2.csv", TASKS + "k1,p1,call back,requested,a\n")
    later = asked("import")["batches"][0]["batch_id"]
    target.put_faults = []
    if is_there:
        [body] = target.of("Task")
        body["description"] = "call back"
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "900")
    found = asked("doubts", "resolve")
    assert list(found["adopted"] if is_there else found["left"]) == [f"{later}:2"]
    assert asked("undo", later)["unfinished"] != is_there
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    found = asked("undo", later)
    assert (found["unfinished"], found["not_taken"]) == (False, is_there)
    assert asked("import")["batches"] == []
    assert [body["description"] for body in target.of("Task")] == ["call back" if is_there else "call k1"]
    assert asked("verify")["counts"] == {}


def records_of(home):
    """Return the state of each record, by key and generation."""
    with read_ledger(home) as ledger:
        return sorted(ledger.execute("SELECT key, generation, state, resource_id FROM main.record"))


def test_a_batch_that_undo_ends_has_closed_the_rejects_that_its_records_answer(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10, LEDGER-07: a correction under another key would charge the patient once more."""
    put(home, "payments-wrong.csv", f"{PAYMENTS}k1,p1,x,2026-03-01,\n")
    asked("import")
    put(home, "payments-right.csv", f"{PAYMENTS}k1,p1,1.00,2026-03-01,\n")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.loading.stage.close_answered", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import")[0] == INTERRUPTED
    with read_ledger(home) as ledger:
        [(batch, wrong)] = ledger.execute(
            "SELECT batch.batch_id, reject_id FROM batch, reject WHERE batch.state = 'running'"
        )
    assert asked("undo", batch)["ended"]
    with read_ledger(home) as ledger:
        assert ledger.execute("SELECT state, closed_by_batch FROM reject").fetchall() == [("closed", batch)]
    corrected = PAYMENTS.replace("payment_id", "_reject_id,payment_id") + f"{wrong},k1-b,p1,1.00,2026-03-01,\n"
    put(home, "payments-corrected.csv", corrected)
    assert asked("import")["totals"]["created"] == 0
    assert len(target.of("PaymentNotice")) == 1
