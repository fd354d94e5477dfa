"""Times that the target gives are compared by the target's clock, however wrong the ledger's clock was."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.support.ledgers import lose_ledger
from tests.support.setting_clocks import set_clock
from tests.support.updated_tasks import TASKS, feed_of_tasks

PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id"
AHEAD = timedelta(hours=10)


@pytest.fixture
def imported(home, asked, monkeypatch):
    """Imports a file of these rows while the clock is off; returns the name of the batch. Then the clock is right."""

    def imported(off, name, head, *rows):
        set_clock(monkeypatch, off)
        (home / "inbox" / name).write_text("\n".join([head, *rows, ""]))
        [batch] = asked("import")["batches"]
        set_clock(monkeypatch, timedelta(0))
        return batch["batch_id"]

    return imported


def amounts(target):
    return sorted(body["amount"]["value"] for body in target.of("PaymentNotice"))


@pytest.mark.alike
@pytest.mark.parametrize("off", [AHEAD, timedelta(days=4), -AHEAD], ids=str)
def test_a_lost_payment_is_found_though_it_was_sent_while_the_clock_was_wrong(
    home, target, imported, asked, chartferry, off
):
    """CLI-CMD-17, LEDGER-08: by its time it seemed to be older, and a person could have it sent twice."""
    target.additions = False
    batch = imported(off, "payments-1.csv", PAYMENTS, "k1,p1,5.00,2026-03-01,")
    lose_ledger(home)
    assert asked("verify", "--adopt")["batches"][batch] == {"adopted": 1, "taken_back": 0, "in_doubt": 0}
    assert chartferry("doubts", "resend", f"{batch}:2", "--why", "it is not there")[0] == 4
    asked("import")
    assert amounts(target) == [5.0]


def test_a_run_without_a_manifest_may_have_begun_when_its_file_was_received(home, target, imported, asked):
    """CLI-CMD-17, LEDGER-08: the manifest of a later run of the batch is no evidence about the first."""
    target.additions = False
    batch = imported(timedelta(0), "payments-1.csv", PAYMENTS, "k1,p1,5.00,2026-03-01,")
    run, another = home / "batches" / batch / "run-1", home / "batches" / batch / "run-2"
    said = json.loads((run / "manifest.json").read_text())
    later = (datetime.now(UTC) + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    another.mkdir()
    (another / "manifest.json").write_text(json.dumps(said | {"run": 2, "started_at": later}))
    (run / "manifest.json").unlink()
    lose_ledger(home)
    assert asked("verify", "--adopt")["batches"][batch] == {"adopted": 1, "taken_back": 0, "in_doubt": 0}
    assert amounts(target) == [5.0]


def test_verify_names_a_late_double_although_the_clock_was_ahead(target, imported, asked):
    """CLI-CMD-17: by the target's clock, it is not older than the first attempt."""
    target.additions = False
    imported(AHEAD, "payments-1.csv", PAYMENTS, "k1,p1,5.00,2026-03-01,")
    batch = imported(timedelta(0), "payments-2.csv", PAYMENTS, "k2,p2,6.00,2026-03-01,")
    [first] = [body for body in target.of("PaymentNotice") if body["amount"]["value"] == 6.0]
    double = str(uuid4())
    target.stored[double] = first | {"id": double}
    assert [(each["kind"], each["row"]) for each in asked("verify")["differences"]] == [("double", f"{batch}:2")]


def test_a_later_change_in_the_chart_is_not_taken_for_a_lost_update(home, target, imported, asked, chartferry):
    """CLI-CMD-17, CLI-CMD-18: and it is not overwritten."""
    feed_of_tasks(home)
    imported(AHEAD, "tasks-1.csv", TASKS, "t1,p1,old,requested,dr1")
    batch = imported(timedelta(0), "tasks-2.csv", TASKS, "t1,p1,new,requested,dr1")
    [task] = target.of("Task")
    target.stored[task["id"]]["description"] = "by the chart"
    target.changed_at[task["id"]] = datetime.now(UTC) + timedelta(seconds=30)
    found = asked("verify")
    assert (found["exit_code"], found["counts"]) == (0, {"changed": 1})
    assert chartferry("import", "--again", batch)[0] == 4
    assert [task["description"] for task in target.of("Task")] == ["by the chart"]
    target.changed_at[task["id"]] = datetime.now(UTC) - timedelta(hours=1)
    assert asked("verify")["counts"] == {"not updated": 1}


def test_a_clock_that_is_ahead_does_not_let_retention_remove_rows(home, imported, asked, monkeypatch):
    """STATE-HOME-03: rows that are removed by age never come back."""
    batch = imported(timedelta(0), "payments-1.csv", PAYMENTS, "k1,p1,5.00,2026-03-01,")
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "30")
    set_clock(monkeypatch, timedelta(days=400))
    asked("import")
    set_clock(monkeypatch, timedelta(0))
    asked("import", "--clock-is-right")
    assert any((home / "batches" / batch / "source").iterdir())


def test_a_settling_time_is_not_over_because_the_clock_was_corrected(home, target, asked, monkeypatch):
    """LEDGER-08: the first request may still be under way."""
    target.additions = False
    target.faults = ["lost_before"]
    set_clock(monkeypatch, -AHEAD)
    (home / "inbox" / "tasks-1.csv").write_text(f"{TASKS}\nt1,p1,call,requested,dr1\n")
    assert asked("import")["totals"]["in_doubt"] == 1
    target.faults = []
    set_clock(monkeypatch, timedelta(0))
    assert asked("import")["totals"]["in_doubt"] == 1
    assert target.of("Task") == []
    set_clock(monkeypatch, timedelta(hours=1))
    target.now = target.date_header = lambda: datetime.now(UTC) + timedelta(hours=1)
    assert asked("import")["totals"]["created"] == 1
