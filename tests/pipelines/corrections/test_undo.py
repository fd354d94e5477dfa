"""Batches that a person takes back by `undo`, and loads again."""

import errno
import json
import os
import re
import signal
from collections import Counter
from unittest.mock import Mock

import duckdb
import pytest

from pipelines.cli import run
from pipelines.corrections import undo as undoing
from pipelines.corrections.undo import NO_CLEAR_ANSWER
from pipelines.corrections.undo_result import ENDED, UNFINISHED
from pipelines.home import disk
from pipelines.home.exits import INTERRUPTED
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from pipelines.loading.changes import Changes
from pipelines.receiving.stage import receive
from pipelines.reports.attention import ENDED_BY_UNDO as ENDED_SAID
from pipelines.runs.beginning import begin
from pipelines.runs.lines import SHOWN_NEXT
from pipelines.runs.loading import load_run
from pipelines.runs.run import ENDED_BY_UNDO
from pipelines.runs.validating import validate_run
from pipelines.session.opening import open_session
from pipelines.session.waiting_files import find_files
from tests.support.commands import totals_close
from tests.support.exports import ANSWERS, QUESTIONS, TASKS, feed_file, payments, put, tasks
from tests.support.fake_target import Handler
from tests.support.ledgers import decisions, read_ledger
from tests.support.publishing import PAGED


@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
def test_undo_takes_tasks_back_and_again_loads_them_anew(home, target, asked, chartferry, additions):
    """CLI-CMD-10, CLI-CMD-11, CLI-CMD-18, CLI-CMD-19"""
    target.additions = additions
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    assert len(asked("undo", batch, "--dry-run")["taken_back"]) == 2
    told = chartferry("undo", batch, "--dry-run")[2]
    assert ("undo (dry run) done, 2 rows" in told, "undo done" in told) == (True, False)
    assert target.puts == 0
    target.put_faults = ["lost_after", "conflict"]
    found = asked("undo", batch)
    assert (found["exit_code"], sorted(found["taken_back"])) == (0, [f"{batch}:2", f"{batch}:3"])
    assert {(body["status"], body["description"]) for body in target.of("Task")} == {
        ("cancelled", "call k1"),
        ("cancelled", "call k2"),
    }
    assert asked("undo", batch)["taken_back"] == {}
    assert asked("import", str(next((home / "batches" / batch / "source").iterdir())))["totals"]["skipped"] == 2
    found = asked("import", "--again", batch)
    totals_close(found)
    assert found["totals"]["created"] == 2
    assert [body["status"] for body in target.of("Task")] == ["cancelled"] * 2 + ["requested"] * 2
    if additions:
        values = [body["identifier"][0]["value"] for body in target.of("Task")]
        assert values == ["k1", "k2", "k1~2", "k2~2"]
    assert asked("verify")["differences"] == []
    status = json.loads(chartferry("status", batch, "--json")[1])["batches"][0]
    assert (status["state"], status["created"], status["accepted"]) == ("finished", 2, 2)
    code, _, err = chartferry("import", "--again", batch)
    assert code == 4
    assert "nothing to load again: no record of it was taken back by an undo, and none is gone from the target" in err
    assert [each[:2] for each in decisions(home)] == [("undo", batch), ("undo", batch), ("import --again", batch)]


@pytest.mark.parametrize("again", [True, False])
def test_a_batch_to_be_loaded_again_goes_on_after_a_kill(again, home, asked, chartferry, monkeypatch):
    """CLI-CMD-18: by the same command or by any import, before any of its records was sent."""
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.importing.requested_import.import_all", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import", "--again", batch)[0] == INTERRUPTED
    assert asked("import", *["--again", batch] * again)["totals"]["created"] == 1


def test_undo_keeps_the_answers_of_a_response_at_a_server_whose_update_replaces_the_resource(home, target, asked):
    """CLI-CMD-11, TARGET-03: the server's CapabilityStatement does not distinguish it from the interface."""
    target.additions, target.promised = False, ["reference"]
    target.stored["q1"] = QUESTIONS
    put(home, "answers.csv", "response_id,patient_id,questionnaire,question,answer_text\nr1,p1,q1,1,tired\n")
    batch = asked("import")["batches"][0]["batch_id"]
    (before,) = target.of("QuestionnaireResponse")
    assert asked("undo", batch)["exit_code"] == 0
    assert target.of("QuestionnaireResponse") == [before | {"status": "entered-in-error"}]


def test_a_response_taken_back_in_the_chart_is_loaded_again_by_the_steps_that_verify_names(
    home, target, asked, chartferry
):
    """CLI-CMD-11, CLI-CMD-17"""
    target.stored["q1"] = QUESTIONS
    row = "r1,p1,q1,1,tired"
    put(home, "answers.csv", f"response_id,patient_id,questionnaire,question,answer_text\n{row}\n")
    batch = asked("import")["batches"][0]["batch_id"]
    (response,) = target.of("QuestionnaireResponse")
    response["status"] = "entered-in-error"
    code, out, _ = chartferry("verify")
    assert code == 3
    assert "1 taken back: taken back in the chart; chartferry undo BATCH, then import --again BATCH, loads" in out
    assert f"taken back, by batch: {batch} (1)" in out
    assert chartferry("import", "--again", batch)[0] == 4
    assert asked("undo", batch)["exit_code"] == 0
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert asked("verify")["differences"] == []


@pytest.fixture
def few_a_bundle(monkeypatch):
    """Let a bundle have 50 rows at most."""
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 50)


def test_undo_goes_in_bundles_where_the_target_takes_them(home, target, asked, few_a_bundle):
    """CLI-CMD-10: two requests for each bundle. Resources that were changed or deleted meanwhile go one by one."""
    tasks(home, *(f"k{number}" for number in range(110)))
    batch = asked("import")["batches"][0]["batch_id"]
    ids = list(target.stored)
    target.stored[ids[0]]["status"] = "cancelled"
    del target.stored[ids[1]]
    before, sizes = target.writes, len(target.sizes)
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (0, 110, 0)
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert (target.writes - before, target.sizes[sizes:]) == (6, [50, 48, 50, 50, 10, 10])
    assert asked("verify")["exit_code"] == 0


def backwards(answers):
    return answers[::-1]


def writes_backwards(answers):
    return answers if "resource" in answers[0] else answers[::-1]


@pytest.mark.parametrize("order", [backwards, writes_backwards])
def test_no_answer_of_a_bundle_is_taken_for_that_of_another_resource(home, target, asked, few_a_bundle, order):
    """CLI-CMD-10: a server may answer in another order. One task's text would replace another's."""
    target.additions, target.promised = False, ["batch", "conditional"]
    tasks(home, *(f"k{number}" for number in range(60)))
    batch = asked("import")["batches"][0]["batch_id"]
    target.order = order
    first, texts = next(iter(target.stored)), {name: body["description"] for name, body in target.stored.items()}
    entry = Handler.entry

    def numbered(self, request, resource=None):
        """Show entity tags that are equal for all resources. The first resource was changed meanwhile."""
        name = request["url"].rpartition("/")[2]
        current = "of before" if name == first else target.etag(name)
        found = entry(self, request | {"ifMatch": current}, resource)
        return found | {"response": found["response"] | {"etag": 'W/"1"'}}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handler, "entry", numbered)
        found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (0, 60, 0)
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert {name: body["description"] for name, body in target.stored.items()} == texts


def test_undo_goes_in_transactions_where_the_target_takes_no_others(home, target, asked, few_a_bundle):
    """CLI-CMD-10: a transaction with one refused entry changes nothing. Its resources are then sent one by one."""
    target.additions, target.promised = False, ["transaction", "conditional"]
    tasks(home, *(f"k{number}" for number in range(110)))
    batch = asked("import")["batches"][0]["batch_id"]
    del target.stored[list(target.stored)[1]]
    sizes, puts = len(target.sizes), target.puts
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (0, 110, 0)
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert (target.sizes[sizes:], target.puts - puts) == ([50, 50, 50, 10, 10], 109)
    assert asked("verify")["exit_code"] == 0


def test_an_undo_of_payments_takes_none_back_and_says_so(home, target, asked):
    """CLI-CMD-10"""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (3, 0, 2)


@pytest.mark.long
@pytest.mark.then_published
def test_a_batch_is_taken_back_and_loaded_again_a_piece_at_a_time(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-10, CLI-CMD-18: memory does not grow with the batch. The first rows are named, all are counted."""
    sizes = {"undo.ROWS_A_COMMIT": 2, "records.ROWS_A_PIECE": 3, "missing_resources.READS_WITHOUT_A_SWEEP": 1}
    for name, number in {**sizes, "undo_result.LISTED": 4, "undo_result.SHOWN": 1}.items():
        monkeypatch.setattr(f"pipelines.corrections.{name}", number)
    tasks(home, *(f"k{number}" for number in range(10)))
    batch = asked("import")["batches"][0]["batch_id"]
    found = asked("undo", batch, "--dry-run")
    assert (found["taken"], len(found["taken_back"])) == (10, 4)
    found = asked("undo", batch)
    assert (found["taken"], list(found["taken_back"])) == (10, [f"{batch}:{line}" for line in range(2, 6)])
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    code, out, err = chartferry("import", "--again", batch)
    assert (code, "again done, 10 rows" in err, "10 to be loaded again" in err) == (0, True, True), out + err
    anew = [name for name, body in target.stored.items() if body["status"] == "requested"]
    assert len(anew) == 10
    for name in anew[:4]:
        target.lose(name)
    code, out, err = chartferry("import", "--again", batch)
    assert (code, "again done, 10 rows" in err, "4 to be loaded again" in err) == (0, True, True), out + err
    assert asked("verify")["differences"] == []
    out = chartferry("undo", batch)[1]
    assert f"{batch}:2: taken back: Task/" in out
    assert "and 9 more taken back\n10 taken back, 0 not" in out


def test_resources_that_an_interrupted_undo_left_are_not_made_a_second_time_by_import_again(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10, CLI-CMD-18: the target is asked which changes the undo had made."""
    tasks(home, "k1", "k2", "k3")
    batch = asked("import")["batches"][0]["batch_id"]
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.corrections.undo.undone", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("undo", batch)[0] == INTERRUPTED
    kept = next(body for body in target.of("Task") if body["description"] == "call k2")
    kept["status"] = "requested"
    assert asked("import", "--again", batch)["totals"]["created"] == 2
    assert sorted((body["description"], body["status"]) for body in target.of("Task")) == [
        ("call k1", "cancelled"),
        ("call k1", "requested"),
        ("call k2", "requested"),
        ("call k3", "cancelled"),
        ("call k3", "requested"),
    ]
    assert asked("verify")["differences"] == []


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
    assert f"chartferry import --again {batch}" in chartferry("status", batch)[1]
    assert "tasks.csv tasks ended by undo" in words_of(home, "imports")
    remedy = f"chartferry import --again {batch} loads it whole. If it is not needed, give it up by chartferry purge"
    assert f"tasks.csv {ENDED_SAID} {remedy} {batch}." in words_of(home, "problems")
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


@pytest.mark.parametrize(
    ("additions", "state"),
    [(True, "created"), (False, "created"), (True, "adopted")],
    ids=["with additions", "bare", "another home's"],
)
def test_verify_and_status_name_records_that_an_interrupted_undo_may_have_taken_back(
    home, target, asked, chartferry, monkeypatch, additions, state
):
    """CLI-CMD-10, CLI-CMD-17: the ledger must not seem to agree with a target that has cancelled the whole batch."""
    target.additions = additions
    tasks(home, "k1", "k2")
    if state == "adopted":
        run(["--home", str(home.parent / "other"), "import", str(home / "inbox")])
    [found] = asked("import")["batches"]
    assert found["counts"][state] == 2
    batch = found["batch_id"]
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.corrections.undo.undone", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("undo", batch)[0] == INTERRUPTED
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    found = asked("verify", batch)
    assert (found["exit_code"], found["counts"]) == (3, {"undo open": 2})
    said = (
        f"{batch}: it is not known whether an undo took 2 of its records back; chartferry undo {batch} goes on with it"
    )
    assert said in chartferry("status")[1]
    assert f"note: {said}" in chartferry("import")[1]
    assert asked("undo", batch)["taken"] == 2
    assert asked("verify")["counts"] == {}
    assert said not in chartferry("status")[1] + chartferry("import")[1]


@pytest.mark.long
def test_an_interrupted_undo_does_not_stay_open_for_a_record_that_a_later_file_updated(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10, CLI-CMD-17: no further undo could finish it, since a change is not taken back."""
    let_update(home)
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.corrections.undo.undone", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("undo", batch)[0] == INTERRUPTED
    put(home, "tasks-2.csv", TASKS + "k1,p1,call back,requested,a\n")
    assert asked("import")["totals"]["updated"] == 1
    assert [each["row"] for each in asked("verify")["differences"]] == [f"{batch}:3"]
    assert [row["undo_left"] for row in asked_of_status(chartferry)] == [1, 0]
    assert asked("undo", batch)["taken"] == 1
    assert asked("verify")["counts"] == {}
    assert [row["undo_left"] for row in asked_of_status(chartferry)] == [0, 0]


def test_status_counts_the_records_of_each_batch_that_are_taken_back_now(home, asked, chartferry):
    """CLI-CMD-10, CLI-CMD-17: a line counts by the state of its record, even if another line changed that."""
    tasks(home, "k1", "k2")
    first = asked("import")["batches"][0]["batch_id"]
    asked("undo", first)
    put(home, "tasks-2.csv", TASKS + "k1,p1,call back,requested,a\n")
    second = asked("import")["batches"][0]["batch_id"]

    def told():
        found = {row["batch_id"]: row["taken_back"] for row in asked_of_status(chartferry)}
        return found[first], found[second]

    assert told() == (2, 0)
    asked("undo", second)
    assert told() == (2, 1)
    asked("import", "--again", first)
    assert told() == (1, 1)
    asked("rejects", "retry", "--taken-back")
    assert told() == (0, 1)


def test_ctrl_c_ends_updates_once_those_under_way_have_their_answers(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-10: the thousands of rows that were read together are not sent first."""
    let_update(home)
    keys = [f"k{number}" for number in range(9)]
    tasks(home, *keys)
    asked("import")
    put(home, "tasks-2.csv", TASKS + "".join(f"{key},p1,call back,requested,a\n" for key in keys))
    monkeypatch.setattr("pipelines.loading.policies.UPDATES_A_COMMIT", 2)
    update = Changes.update

    def interrupted(*given):
        os.kill(os.getpid(), signal.SIGINT)
        return update(*given)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patched:
        patched.setattr(Changes, "update", interrupted)
        assert chartferry("import")[0] == INTERRUPTED
    signal.signal(signal.SIGINT, before)
    assert sum(body["description"] == "call back" for body in target.of("Task")) == target.puts == 2
    assert asked("import")["totals"]["updated"] == 7
    assert asked("verify")["counts"] == {}


@pytest.mark.alike
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_change_in_doubt_is_accepted_as_no_resource(home, target, asked, chartferry, monkeypatch, is_cut_off):
    """CLI-CMD-09: a similar task must not replace the task that the record has."""
    target.additions = False
    let_update(home)
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    [own] = target.stored
    if is_cut_off:
        with monkeypatch.context() as patched:
            patched.setattr("pipelines.corrections.undo.undone", Mock(side_effect=KeyboardInterrupt))
            assert chartferry("undo", batch)[0] == INTERRUPTED
    target.put_faults = ["lost_before"] * 10
    put(home, "tasks-2.csv", TASKS + "k1,p1,call back,requested,a\n")
    [later] = asked("import")["batches"]
    assert later["counts"]["in_doubt"] == 1
    target.put_faults = []
    assert asked("verify")["counts"] == {"in doubt": 1}
    other = target.create({**target.stored[own], "id": None, "description": "call back", "status": "requested"})
    for name in (own, other[1].rpartition("/")[2]):
        code, _, err = chartferry("doubts", "accept", f"{later['batch_id']}:2", "--resource", name)
        assert (code, "nothing to decide: the next import" in err) == (4, True), err
    assert asked("import")["totals"]["updated"] == 1
    assert target.stored[own]["description"] == "call back"


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


def asked_of_status(chartferry):
    return json.loads(chartferry("status", "--json")[1])["batches"]


def let_update(home):
    """Have later files update tasks."""
    feed_file(home, "tasks", 'kind = "tasks"\nfiles = ["tasks*.csv"]\nchanged = "update"\n', TASKS)


def test_a_resource_whose_undo_the_target_refuses_stays_in_the_ledger_as_it_was(home, target, asked, chartferry):
    """CLI-CMD-10, CLI-CMD-17"""
    target.additions = False
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    target.put_faults = ["refused"]
    assert list(asked("undo", batch)["left"]) == [f"{batch}:2"]
    assert asked("verify")["counts"] == {}
    target.put_faults = []
    assert asked("undo", batch)["taken"] == 1


def test_verify_names_records_whose_undo_got_no_answer(home, target, asked, monkeypatch):
    """CLI-CMD-10: the first request gets no answer to any attempt; then the second is not sent."""
    monkeypatch.setenv("CHARTFERRY_AT_ONCE", "1")
    target.additions = False
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    target.put_faults = ["lost_before"] * 20
    found = asked("undo", batch)
    said = sorted(why.partition(": ")[2] for why in found["left"].values())
    assert (found["exit_code"], said) == (6, ["not done", NO_CLEAR_ANSWER])
    target.put_faults = []
    assert asked("verify")["counts"] == {"undo open": 2}
    assert asked("undo", batch)["taken"] == 2


@pytest.mark.alike
@pytest.mark.parametrize("command", [["undo"], ["import", "--again"]])
def test_a_resource_that_a_restore_brought_back_after_an_undo_is_taken_back_again(home, target, asked, command):
    """CLI-CMD-10, CLI-CMD-17, CLI-CMD-18: so does `import --again`, which loads it anew."""
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    restored = next(body for body in target.of("Task") if body["description"] == "call k1")
    restored["status"] = "requested"
    assert asked("verify")["counts"] == {"not taken back": 1}
    assert list(asked("undo", batch, "--dry-run")["taken_back"].values()) == [f"Task/{restored['id']}"]
    assert restored["status"] == "requested"
    asked(*command, batch)
    live = sorted(body["description"] for body in target.of("Task") if body["status"] != "cancelled")
    assert live == ([] if command == ["undo"] else ["call k1", "call k2"])
    assert asked("verify")["differences"] == []


def test_undo_lists_payments_as_not_to_be_taken_back(home, target, asked, chartferry):
    """CLI-CMD-10"""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    found = asked("undo", batch)
    assert found["exit_code"] == 3
    assert ("a payment cannot be taken back through the interface; correct it in the chart") in found["left"][
        f"{batch}:2"
    ]
    assert target.puts == 0
    assert chartferry("undo", "none")[0] == 4


@pytest.mark.publishes(*PAGED)
def test_page_tables_and_status_show_an_undo(home, asked, chartferry):
    """CLI-CMD-10: wherever a user looks, its records are shown as taken back."""
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch, "--dry-run")
    before = [line.split() for line in chartferry("status")[1].splitlines()]
    assert before[1:] == [
        ["file", "batch", "state", "records", "accepted", "created", "created", "$"],
        ["tasks.csv", batch, "finished", "2", "2", "2", "0.00"],
    ]
    assert "tasks.csv tasks loaded 20" in words_of(home, "imports")
    asked("undo", batch)
    [heads, row] = chartferry("status")[1].splitlines()[1:]
    assert "created  taken back  created $" in heads
    assert row.split() == ["tasks.csv", batch, "finished", "2", "2", "2", "2", "0.00"]
    assert "tasks.csv tasks taken back" in words_of(home, "imports")
    assert states_of(home) == ["undone"]


FULL = OSError(errno.ENOSPC, "No space left on device")
AS_CREATED = "until the next publication the tables show the records as created"


@pytest.mark.alike
@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (KeyboardInterrupt, 130, "stopped"),
        pytest.param(FULL, 0, f"not published: {disk.FULL}; {AS_CREATED}", marks=pytest.mark.long),
        (LedgerError("not published: a sum is wrong"), 0, f"not published: a sum is wrong; {AS_CREATED}"),
    ],
)
@pytest.mark.publishes("import_row")
def test_undo_prints_its_result_even_if_the_publication_fails_and_the_next_undo_publishes(
    home, asked, chartferry, monkeypatch, failure, code, said
):
    """CLI-CMD-10: nobody has to wait for the tables to learn about the records."""
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.importing.begin_and_end.publish_reports", Mock(side_effect=failure))
        found, out, err = chartferry("undo", batch, "--json")
    assert (found, json.loads(out)["taken"]) == (code, 1), err
    assert said in err
    assert states_of(home) == ["created"]
    assert asked("undo", batch)["taken"] == 0
    assert states_of(home) == ["undone"]


@pytest.mark.long
@pytest.mark.publishes("import_row")
def test_an_undo_interrupted_by_the_target_says_when_the_tables_will_show_it(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10"""
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 1)
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    undo_some = undoing._undo_some

    def cut_off(session, lease, some, done, bundle):
        undo_some(session, lease, some, done, bundle)
        done.unusable = "HTTP 503"

    monkeypatch.setattr(undoing, "_undo_some", cut_off)
    code, out, err = chartferry("undo", batch)
    assert (code, "1 taken back, 0 not\nerror: HTTP 503" in out) == (6, True), err
    assert err.splitlines()[-1] == SHOWN_NEXT
    assert states_of(home) == ["created"]


def states_of(home):
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        return [state for (state,) in published.execute("SELECT DISTINCT state FROM import_row").fetchall()]


def words_of(home, figure):
    """Return the text of a figure on the page."""
    page = (home / "published" / "report.html").read_text(encoding="utf-8")
    shown = page.partition(f'id="{figure}"')[2].partition("</section>")[0]
    return " ".join(re.sub("<[^>]*>", " ", shown).split())


def test_a_batch_that_is_undone_keeps_its_counts_and_is_published(home, asked):
    """CLI-CMD-10"""
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    assert asked("import")["error"] is None


@pytest.mark.long
def test_undo_names_the_records_that_it_leaves_because_a_later_file_changed_them(home, target, asked):
    """CLI-CMD-10: with that file, and by a dry run, too."""
    let_update(home)
    tasks(home, "k1", "k2")
    made = asked("import")["batches"][0]["batch_id"]
    put(home, "tasks-2.csv", TASKS + "k1,p1,call back,requested,a\n")
    later = asked("import")["batches"][0]["batch_id"]
    [changed] = [body["id"] for body in target.of("Task") if body["description"] == "call back"]
    left = {f"{made}:2": f"Task/{changed}: the later batch {later} has changed it, and a change cannot be taken back"}
    for arguments in (["--dry-run"], []):
        found = asked("undo", made, *arguments)
        assert (found["exit_code"], [*found["taken_back"]], found["left"]) == (3, [f"{made}:3"], left)
    assert {body["description"]: body["status"] for body in target.of("Task")} == {
        "call back": "requested",
        "call k2": "cancelled",
    }
    put(home, "tasks-3.csv", TASKS + "k1,p1,call once more,requested,a\n")
    latest = asked("import")["batches"][0]["batch_id"]
    why = "this batch only changed it, and a change cannot be taken back"
    assert asked("undo", latest)["left"] == {f"{latest}:2": f"Task/{changed}: {why}"}
    why = f"the later batch {latest} has changed it, and a change cannot be taken back"
    for batch in (made, later):
        assert asked("undo", batch)["left"] == {f"{batch}:2": f"Task/{changed}: {why}"}


@pytest.mark.long
def test_a_batch_keeps_its_counts_when_another_file_reloads_its_undone_records(home, asked, chartferry):
    """CLI-CMD-10: also after its own file was imported again."""
    tasks(home, "k1")
    asked("import")
    first = next((home / "batches").glob("tasks-*/source/*"))
    asked("undo", first.parts[-3])
    put(home, "tasks-2.csv", "task_id,patient_id,description,status,requester_id\nk1,p1,call back,requested,a\n")
    assert asked("import")["totals"]["created"] == 1
    asked("import", first)
    [batch] = json.loads(chartferry("status", first.parts[-3], "--json")[1])["batches"]
    assert (batch["created"], batch["adopted"], batch["accepted"]) == (1, 0, 1)


@pytest.mark.long
def test_undo_takes_back_former_resources_that_a_restore_brought_back(home, target, asked):
    """CLI-CMD-10, CLI-CMD-17: as verify advises."""
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    before = {name: dict(body) for name, body in target.stored.items()}
    for name in before:
        target.lose(name)
    asked("import", "--again", batch)
    asked("undo", batch)
    target.stored = before
    assert asked("verify")["counts"] == {"not taken back": 2}
    assert asked("undo", batch)["taken"] == 2
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert asked("verify")["counts"] == {}


@pytest.mark.long
def test_undo_counts_the_records_that_later_files_replaced(home, target, asked, chartferry):
    """CLI-CMD-10: records that were superseded, or loaded again after they were taken back."""
    target.stored["q1"] = QUESTIONS
    feed_file(home, "answers", 'kind = "answers"\nfiles = ["answers*.csv"]\nchanged = "supersede"\n', ANSWERS)

    def load(name, *answers):
        put(home, name, ANSWERS + "".join(f"r{n},p1,q1,1,{said}\n" for n, said in enumerate(answers)))
        return asked("import")["batches"][0]["batch_id"]

    load("answers-1.csv", "one", "one", "one")
    middle = load("answers-2.csv", "two", "two", "two")
    load("answers-3.csv", "three")
    for more in (["--dry-run"], []):
        found = asked("undo", middle, *more)
        assert (found["exit_code"], found["taken"], found["not_taken"], found["replaced"]) == (0, 2, 0, 1)
    load("answers-4.csv", "three", "four")
    out = chartferry("undo", middle)[1]
    assert out.endswith(
        "0 taken back, 0 not\n2 superseded or loaded again by later files: the resources of those files stay\n"
    )
