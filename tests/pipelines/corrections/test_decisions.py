"""Decisions by hand on the command line are recorded; a dry run makes none."""

import json

from pipelines.home.user import user_name
from tests.support.commands import totals_close
from tests.support.exports import TASKS, payments, put, tasks
from tests.support.ledgers import decisions


def test_a_dry_run_says_what_the_import_then_does(home, target, asked):
    """CLI-IMPORT-10: also for records that are known, changed or taken back."""
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


def test_every_decision_by_hand_is_on_record_with_its_reason(home, target, asked, chartferry):
    """CLI-CMD-19: and `status` shows it with its batch."""
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


def test_a_reason_in_another_encoding_is_kept_as_far_as_it_can_be_read(home, target, asked):
    """A terminal that is set to Latin-1 sends bytes that are not UTF-8."""
    tasks(home, "t1")
    batch = asked("import")["batches"][0]["batch_id"]
    assert asked("undo", batch, "--why", "f\udcfcr Ann")["exit_code"] == 0
    assert {why for _, _, why in decisions(home)} == {"f?r Ann"}
