"""Status, tables and page after an `undo`."""

import errno
import json
from unittest.mock import Mock

import duckdb
import pytest

from pipelines.cli import run
from pipelines.corrections import undo as undoing
from pipelines.corrections.undo import NO_CLEAR_ANSWER
from pipelines.home import disk
from pipelines.home.exits import INTERRUPTED
from pipelines.ledger.tables import LedgerError
from pipelines.runs.lines import SHOWN_NEXT
from tests.support.commands import asked_of_status
from tests.support.exports import TASKS, let_update, put, tasks
from tests.support.publishing import PAGED, words_of


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


def test_a_batch_that_is_undone_keeps_its_counts_and_is_published(home, asked):
    """CLI-CMD-10"""
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    assert asked("import")["error"] is None


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
