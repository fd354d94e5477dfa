"""What people decide by hand, on the command line: doubts, undo, --again, --remap, purge; all on the record."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipelines.home.exits import INTERRUPTED
from pipelines.home.user import user_name
from pipelines.ledger.ledger import Ledger
from tests.support.commands import totals_close
from tests.support.exports import TASKS, payments, put, tasks

ONE = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}}


def decisions(home):
    ledger = Ledger.open(home / "ledger.db")
    try:
        assert all(row["user"] == user_name() and row["at"] for row in ledger.decisions())
        return [(row["command"], row["subject"], row["why"]) for row in ledger.decisions()]
    finally:
        ledger.close()


def test_a_dry_run_says_what_the_import_then_does(home, target, asked):
    """CLI-IMPORT-10: of records that are known, changed, or were taken back, too."""
    tasks(home, "gone")
    [undone] = asked("import")["batches"]
    asked("undo", undone["batch_id"])
    tasks(home, "same", "changed")
    asked("import")
    rows = ["gone,p1,call gone", "same,p1,call same", "changed,p1,another text", "new,p1,call new", "new,p1,call new"]
    put(home, "tasks.csv", TASKS + "".join(f"{row},requested,a\n" for row in rows))
    tried, [batch] = (found := asked("import", "--dry-run"))["totals"], found["batches"]
    done = (found := asked("import"))["totals"]
    totals_close(found)
    names = ("accepted", "rejected", "unchanged", "skipped")
    assert {name: tried[name] for name in names} == {name: done[name] for name in names}
    assert (tried["rejected"], tried["waiting"], done["created"]) == (2, 1, 1)
    assert batch["reasons"] == found["batches"][0]["reasons"] == {"LEDGER-08": 1, "TAKEN-BACK": 1}


# -- doubts


@pytest.fixture
def doubt(home, target, asked):
    """A payment in doubt that the target never got, and one behind it: the batch's name."""
    target.additions = False
    target.faults = ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["in_doubt"], found["totals"]["waiting"]) == (5, 1, 1)
    return found["batches"][0]["batch_id"]


def test_resolve_looks_up_and_adopts_what_arrived_late(doubt, target, asked, chartferry):
    """CLI-CMD-08"""
    found = asked("doubts", "resolve")
    assert (found["exit_code"], found["left"]) == (5, {f"{doubt}:2": "the target does not have it"})
    target.create({"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}})
    code, _, err = chartferry("doubts", "resolve", "--batch", "another")
    assert (code, "another: no such batch" in err) == (4, True)
    found = asked("doubts", "resolve")
    assert (found["exit_code"], found["adopted"]) == (0, {f"{doubt}:2": "PaymentNotice"})
    found = asked("import")
    assert (found["exit_code"], found["totals"]["created"]) == (0, 1)
    assert len(target.of("PaymentNotice")) == 2


@pytest.mark.parametrize("arrives", [False, True])
def test_a_doubt_of_a_retry_is_open_for_the_next_import(home, target, asked, chartferry, arrives):
    """CLI-CMD-06, LEDGER-10: the batch had ended; an import that says nothing of the doubt would leave it unseen."""
    target.additions = False
    target.refuse = lambda body: body["amount"]["value"] == 2.0
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    assert asked("import")["exit_code"] == 3
    target.refuse, target.faults = lambda body: False, ["lost_before"]
    found = asked("rejects", "retry")
    assert (found["exit_code"], found["totals"]["in_doubt"]) == (5, 1)
    (batch,) = json.loads(chartferry("status", "--json")[1])["batches"]
    assert (batch["state"], batch["created"], batch["in_doubt"]) == ("running", 1, 1)
    if arrives:
        target.create(
            {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 2.0}}
        )
    found = asked("import")
    assert (found["exit_code"], found["totals"]["in_doubt"]) == ((0, 0) if arrives else (5, 1))
    (batch,) = json.loads(chartferry("status", "--json")[1])["batches"]
    left = tuple(batch[name] for name in ("state", "created", "adopted", "in_doubt", "open_rejects"))
    assert left == (("finished", 1, 1, 0, 0) if arrives else ("running", 1, 0, 1, 1))
    assert len(target.of("PaymentNotice")) == (2 if arrives else 1)


def test_accept_settles_a_doubt_as_the_resource_that_a_person_names(doubt, home, target, chartferry, asked):
    """CLI-CMD-09, CLI-CMD-19"""
    body = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 9.0}}
    other, right = (target.create({**body, "amount": {"value": value}})[1].rpartition("/")[2] for value in (9.0, 1.0))
    for name, resource, said in (
        (f"{doubt}:7", right, "no such row in doubt"),
        (f"{doubt}:2", "none", "the target has no PaymentNotice/none"),
        (f"{doubt}:2", other, "has other content"),
    ):
        code, _, err = chartferry("doubts", "accept", name, "--resource", resource)
        assert code == 4
        assert said in err
        assert len(err.splitlines()) == 1
    assert decisions(home) == []
    assert asked("doubts", "accept", f"{doubt}:2", "--resource", f"PaymentNotice/{right}")["exit_code"] == 0
    assert decisions(home) == [("doubts accept", f"{doubt}:2", f"PaymentNotice/{right}")]
    assert asked("import")["totals"]["created"] == 1


def test_resend_lets_the_next_import_send_it(doubt, home, target, asked):
    """CLI-CMD-09, CLI-CMD-19"""
    asked("doubts", "resend", f"{doubt}:2")
    assert target.writes == 1
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["created"]) == (0, 2)
    assert decisions(home) == [("doubts resend", f"{doubt}:2", None)]
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0, 2.0]


def test_resend_refuses_while_something_equal_is_there_that_was_not_before(doubt, target, asked, chartferry):
    """LEDGER-21: the request arrives late."""
    late = target.create(ONE)[1].rpartition("/")[2]
    code, out, err = chartferry("doubts", "resend", f"{doubt}:2")
    assert (code, out) == (4, "")
    assert f"{doubt}:2: not sent again: PaymentNotice/{late} has its content and was not there before" in err
    asked("import")
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0, 2.0]


def test_a_request_that_arrives_after_it_was_sent_again_by_hand_is_the_rows(doubt, target, asked):
    """LEDGER-21, LEDGER-06: not there before means before the first attempt of the key, whatever was noted since."""
    asked("doubts", "resend", f"{doubt}:2")
    target.create(ONE)
    target.faults = ["lost_before"]
    totals = asked("import")["totals"]
    assert (totals["adopted"], totals["created"]) == (1, 1)
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0, 2.0]


def test_resend_goes_on_where_a_person_names_the_other(doubt, home, target, asked, chartferry):
    """LEDGER-21: two that were not there before, by hand."""
    others = sorted(target.create(ONE)[1].rpartition("/")[2] for _ in range(2))
    code, _, err = chartferry("doubts", "resend", f"{doubt}:2")
    assert code == 4
    assert f"2 equal ones are there for 1 in doubt: PaymentNotice/{others[0]}, PaymentNotice/{others[1]}" in err
    named = [part for other in others for part in ("--apart-from", f"PaymentNotice/{other}")]
    assert asked("doubts", "resend", f"{doubt}:2", *named)["exit_code"] == 0
    assert asked("import")["totals"]["created"] == 2
    assert decisions(home) == [("doubts resend", f"{doubt}:2", ", ".join(f"apart from {other}" for other in others))]


def test_resend_refuses_where_the_target_cannot_be_asked(doubt, target, chartferry):
    """LEDGER-21"""
    target.found = Mock(side_effect=ValueError)
    code, _, err = chartferry("doubts", "resend", f"{doubt}:2")
    assert code == 4
    assert f"{doubt}:2: not sent again: the target could not be asked" in err


# -- undo and again


@pytest.mark.parametrize("additions", [True, False])
def test_undo_takes_tasks_back_and_again_loads_them_anew(home, target, asked, chartferry, additions):
    """CLI-CMD-10, CLI-CMD-11, CLI-CMD-18, CLI-CMD-19"""
    target.additions = additions
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    assert len(asked("undo", batch, "--dry-run")["taken_back"]) == 2
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
    assert "nothing of it was taken back" in err
    assert [each[:2] for each in decisions(home)] == [("undo", batch), ("undo", batch), ("import --again", batch)]


def test_undo_goes_in_bundles_where_the_target_takes_them(home, target, asked):
    """CLI-CMD-10: two requests for each 500; what has changed meanwhile, or is gone, goes by itself."""
    tasks(home, *(f"k{number}" for number in range(1_100)))
    batch = asked("import")["batches"][0]["batch_id"]
    ids = list(target.stored)
    target.stored[ids[0]]["status"] = "cancelled"
    del target.stored[ids[1]]
    before, sizes = target.writes, len(target.sizes)
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (0, 1_100, 0)
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert (target.writes - before, target.sizes[sizes:]) == (6, [500, 498, 500, 500, 100, 100])
    assert asked("verify")["exit_code"] == 0


def test_undo_goes_in_transactions_where_the_target_takes_no_others(home, target, asked):
    """CLI-CMD-10: a transaction of which one is refused does nothing, and its resources go one by one."""
    target.additions, target.promised = False, ["transaction", "conditional"]
    tasks(home, *(f"k{number}" for number in range(1_100)))
    batch = asked("import")["batches"][0]["batch_id"]
    del target.stored[list(target.stored)[1]]
    sizes, puts = len(target.sizes), target.puts
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (0, 1_100, 0)
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    assert (target.sizes[sizes:], target.puts - puts) == ([500, 500, 500, 100, 100], 1_099)
    assert asked("verify")["exit_code"] == 0


def test_an_undo_of_payments_takes_none_back_and_says_so(home, target, asked):
    """CLI-CMD-10"""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (3, 0, 2)


def test_a_batch_is_taken_back_and_loaded_again_a_piece_at_a_time(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-10, CLI-CMD-18: memory does not grow with the batch; of many rows the first are named, all counted."""
    sizes = {"undo.ROWS_A_COMMIT": 2, "records.ROWS_A_PIECE": 3, "again.READS_WITHOUT_A_SWEEP": 1}
    for name, number in {**sizes, "undo.LISTED": 4, "undo.SHOWN": 1}.items():
        monkeypatch.setattr(f"pipelines.corrections.{name}", number)
    tasks(home, *(f"k{number}" for number in range(10)))
    batch = asked("import")["batches"][0]["batch_id"]
    found = asked("undo", batch, "--dry-run")
    assert (found["taken"], len(found["taken_back"])) == (10, 4)
    found = asked("undo", batch)
    assert (found["taken"], list(found["taken_back"])) == (10, [f"{batch}:{line}" for line in range(2, 6)])
    assert {body["status"] for body in target.of("Task")} == {"cancelled"}
    code, out, err = chartferry("import", "--again", batch)
    assert (code, "again done, 10 rows" in err, "10 to be loaded anew" in err) == (0, True, True), out + err
    anew = [name for name, body in target.stored.items() if body["status"] == "requested"]
    assert len(anew) == 10
    for name in anew[:4]:
        del target.stored[name]
    code, out, err = chartferry("import", "--again", batch)
    assert (code, "again done, 10 rows" in err, "4 to be loaded anew" in err) == (0, True, True), out + err
    assert asked("verify")["differences"] == []
    out = chartferry("undo", batch)[1]
    assert f"{batch}:2: taken back: Task/" in out
    assert "and 9 more taken back\n10 taken back, 0 not" in out


def test_what_an_undo_that_was_cut_off_had_not_done_stays_when_the_batch_is_loaded_again(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-10, CLI-CMD-18: the target tells what it had done."""
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


@pytest.mark.parametrize("command", [["undo"], ["import", "--again"]])
def test_what_was_taken_back_and_is_there_again_after_a_restore_is_taken_back_once_more(home, target, asked, command):
    """CLI-CMD-10, CLI-CMD-17, CLI-CMD-18: no command leaves it in the chart beside what is loaded anew."""
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
    assert "the interface takes no payment back" in found["left"][f"{batch}:2"]
    assert target.puts == 0
    assert chartferry("undo", "none")[0] == 4


def test_a_batch_that_is_undone_keeps_its_counts_and_is_published(home, asked):
    """CLI-CMD-10"""
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    assert asked("import")["error"] is None


def test_remap_applies_the_policy_to_rows_that_the_feed_changed(home, target, asked):
    """CLI-CMD-18: until then the same file is unchanged, and the summary says that it is read otherwise."""
    feed = 'kind = "tasks"\nfiles = ["list*.csv"]\nchanged = "update"\n[columns]\n'
    columns = 'task_id = "id"\ndescription = "what"\nstatus = "state"\nrequester_id = "by"\n'
    (home / "feeds").mkdir()
    (home / "feeds" / "list.toml").write_text(feed + columns)
    put(home, "list.csv", "id,what,more,state,by\nk1,call,ring,requested,a\n")
    assert asked("import")["totals"]["created"] == 1
    (home / "feeds" / "list.toml").write_text(feed + columns.replace('"what"', '"more"'))
    batch = next((home / "batches").glob("list-*"))
    again = asked("import", str(next((batch / "source").iterdir())))
    assert again["totals"]["unchanged"] == 1
    assert again["batches"][0]["message"] == (
        f"{batch.name}: 1 rows are read otherwise since the feed file changed, and stay as they were loaded;"
        ' chartferry import --remap applies the feed\'s policy to them (changed = "update")'
    )
    found = asked("import", "--remap")
    assert found["batches"][0]["message"] is None
    assert found["totals"]["updated"] == 1
    assert [body["description"] for body in target.of("Task")] == ["ring"]
    assert asked("import", "--remap")["batches"] == []
    assert decisions(home) == [("import --remap", batch.name, None)]


def test_every_decision_by_hand_is_on_record_with_its_reason(home, target, asked, chartferry):
    """CLI-CMD-19: and shown with its batch."""
    tasks(home, "k1")
    payments(home, ("k1", "p1", "x"), ("k2", "p1", "1.00"))
    batches = {each["feed"]: each["batch_id"] for each in asked("import")["batches"]}
    why = ("--why", "asked by the practice")
    asked("undo", batches["tasks"], *why)
    asked("import", "--again", batches["tasks"], *why)
    asked("rejects", "retry", *why)
    chartferry("rejects", "discard", "--why", "asked by the practice", *(open_rejects(chartferry, batches["payments"])))
    chartferry("purge", batches["payments"], *why)
    made = [("undo", "tasks"), ("import --again", "tasks"), ("rejects retry", "payments"), ("purge", "payments")]
    found = [each for each in decisions(home) if each[0] != "rejects discard"]
    assert found == [(command, batches[feed], "asked by the practice") for command, feed in made]
    assert chartferry("import", *why)[0] == 2
    shown = chartferry("status", batches["tasks"])[1]
    assert f"{user_name()}: undo {batches['tasks']}: asked by the practice" in shown


def open_rejects(chartferry, batch):
    found = json.loads(chartferry("status", batch, "--json")[1])
    return [each["reject_id"] for each in found["batches"][0]["rejects"]]


# -- purge


def test_purge_removes_source_rows_and_keeps_ledger_and_counts(home, chartferry, asked):
    """CLI-CMD-16, CLI-CMD-19"""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    before = chartferry("status", batch)[1]
    assert chartferry("purge", batch) == (0, f"{batch}: its source rows are removed\n", "")
    left = sorted(path.name for path in (home / "batches" / batch).rglob("*") if path.is_file())
    assert left == ["manifest.json", "sha256"]
    after = chartferry("status", batch)[1].splitlines()
    assert [line for line in after if not line.startswith("decision:")] == before.splitlines()
    assert decisions(home) == [("purge", batch, None)]
    assert asked("import")["exit_code"] == 0
    assert chartferry("purge", "none")[0] == 4


def test_purge_refuses_a_batch_that_is_not_finished_or_has_open_rejects(home, target, chartferry, asked, doubt):
    """CLI-CMD-16"""
    code, _, err = chartferry("purge", doubt)
    assert code == 4
    assert "not finished" in err
    target.additions = True
    payments(home, ("k9", "p1", "abc"))
    batch = next(b["batch_id"] for b in asked("import")["batches"] if b["batch_id"] != doubt)
    code, _, err = chartferry("purge", batch)
    assert code == 4
    assert "1 of its rejects are open" in err


def test_a_file_that_was_corrected_in_vain_is_needed_for_its_reject(home, chartferry, asked, monkeypatch):
    """CLI-CMD-16, CLI-CMD-04: the reject came with one batch and stands in another; only that one is needed."""
    payments(home, ("k1", "p1", "wrong"))
    first = asked("import")["batches"][0]["batch_id"]
    [file] = json.loads(chartferry("rejects", "export", "--json")[1])["files"]
    put(home, "payments-again.csv", Path(file["file"]).read_text().replace(",wrong,", ",xyz,"))
    second = asked("import")["batches"][0]["batch_id"]
    code, _, err = chartferry("purge", second)
    assert (code, err) == (
        4,
        f"chartferry: {second}: 1 of its rejects are open: export and correct, or discard them first\n",
    )
    assert chartferry("purge", first)[0] == 0
    assert "xyz" in Path(json.loads(chartferry("rejects", "export", "--json")[1])["files"][0]["file"]).read_text()
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    _, _, err = chartferry("import")
    assert f"older than 0 days, and kept: {second}: 1 of its rejects are open" in err


def test_old_batches_are_purged_when_a_retention_is_set(home, asked, monkeypatch):
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "1")
    asked("import")
    assert (home / "batches" / batch / "source").exists()
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    (home / "rehearsals").mkdir()
    (home / "rehearsals" / "old.json").write_text("{}")
    asked("import")
    assert not (home / "batches" / batch / "source").exists()
    assert not list((home / "rehearsals").iterdir())


def test_a_reason_in_another_encoding_is_kept_as_far_as_it_can_be_read(home, target, asked):
    """What a terminal sends that is set to Latin-1."""
    tasks(home, "t1")
    batch = asked("import")["batches"][0]["batch_id"]
    assert asked("undo", batch, "--why", "f\udcfcr Ann")["exit_code"] == 0
    assert {why for _, _, why in decisions(home)} == {"f?r Ann"}
