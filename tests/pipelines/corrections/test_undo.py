"""Batches that a person takes back by `undo`, and loads again."""

import json
import os
import signal
from unittest.mock import Mock

import pytest

from pipelines.home.exits import INTERRUPTED
from pipelines.loading.changes import Changes
from tests.support.commands import totals_close
from tests.support.exports import ANSWERS, QUESTIONS, TASKS, feed_file, let_update, payments, put, tasks
from tests.support.fake_target import Handler
from tests.support.ledgers import decisions


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


def test_ctrl_c_ends_updates_once_those_under_way_have_their_answers(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-10: the thousands of rows that were read together are not sent first."""
    let_update(home)
    keys = [f"k{number}" for number in range(9)]
    tasks(home, *keys)
    asked("import")
    put(home, "tasks-2.csv", TASKS + "".join(f"{key},p1,call back,requested,a\n" for key in keys))
    monkeypatch.setattr(Changes, "parts", lambda _, some, __: (some[at : at + 2] for at in range(0, len(some), 2)))
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


def test_undo_takes_back_also_what_an_import_that_was_cut_off_had_replaced(home, target, asked, chartferry):
    """LEDGER-01, LEDGER-08: the target went away between the new response and the end of the old one."""
    target.additions = False
    target.stored["q1"] = QUESTIONS
    feed_file(home, "answers", 'kind = "answers"\nfiles = ["answers*.csv"]\nchanged = "supersede"\n', ANSWERS)
    put(home, "answers-1.csv", ANSWERS + "r1,p1,q1,1,first\n")
    asked("import")
    put(home, "answers-2.csv", ANSWERS + "r1,p1,q1,1,second\n")
    target.put_faults = ["lost_before"] * 50
    [batch] = asked("import")["batches"]
    assert asked("undo", batch["batch_id"])["exit_code"] == 6
    target.put_faults = []
    done = asked("undo", batch["batch_id"])
    assert (done["taken"], done["not_taken"], done["exit_code"]) == (1, 0, 0)
    assert [body["status"] for body in target.of("QuestionnaireResponse")] == ["entered-in-error"] * 2
    assert chartferry("verify")[0] == 0


def test_undo_leaves_the_old_response_while_it_is_not_known_if_the_new_one_is_there(home, target, asked):
    """LEDGER-01, LEDGER-08: otherwise the answer could be in nobody's chart."""
    target.additions = False
    target.stored["q1"] = QUESTIONS
    feed_file(home, "answers", 'kind = "answers"\nfiles = ["answers*.csv"]\nchanged = "supersede"\n', ANSWERS)
    put(home, "answers-1.csv", ANSWERS + "r1,p1,q1,1,first\n")
    asked("import")
    put(home, "answers-2.csv", ANSWERS + "r1,p1,q1,1,second\n")
    target.faults = ["lost_before"]
    [batch] = asked("import")["batches"]
    done = asked("undo", batch["batch_id"])
    assert (done["taken"], done["unfinished"]) == (0, True)
    assert [body["status"] for body in target.of("QuestionnaireResponse")] == ["completed"]
