"""Files keep the order in which they came, whatever the clocks of the machines say that took them in."""

import os
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import home_catalog
from pipelines.ledger.ledger import Ledger
from pipelines.receiving.stage import receive
from pipelines.session.opening import open_session
from tests.support.setting_clocks import set_clock
from tests.support.updated_tasks import TASKS, feed_of_tasks

PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id"
OLD, NEW = "t1,p1,old,requested,dr1", "t1,p1,new,requested,dr1"
DAYS = 4 * 24 * 60
"""Minutes."""
Take = Callable[[Path, int, str, str], datetime]


@pytest.fixture
def take(monkeypatch) -> Take:
    """Takes a file of a task into a home whose clock is off by some minutes, as a step of Dagster does."""

    def take(home, minutes, name, row):
        feed_of_tasks(home)
        set_clock(monkeypatch, timedelta(minutes=minutes))
        (path := home / "inbox" / name).write_text(f"{TASKS}\n{row}\n")
        [feed] = [each for each in home_catalog(home, {}).feeds if each.name == "tasks"]
        if not os.environ.get("CHARTFERRY_BATCHES"):
            return receive(path, feed, home).received_at
        with open_session(home, os.environ, (), False, False) as session:
            return receive(path, feed, home, batches=session.batches).received_at

    return take


@pytest.fixture
def url(postgres, ledger_on_server):
    with postgres.database(like=ledger_on_server) as made:
        yield made


def said_of_tasks(target) -> list[str]:
    return [task["description"] for task in target.of("Task")]


@pytest.mark.alike
@pytest.mark.parametrize("on_server", [False, True], ids=["in a file", "on a server"])
def test_an_older_file_goes_before_a_newer_one(home, target, url, asked, monkeypatch, take, on_server):
    """RECEIVE-01, LEDGER-08: though the clock was set back while both waited, before there was a ledger."""
    if on_server:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
    take(home, 0, "tasks-1.csv", OLD)
    take(home, -30, "tasks-2.csv", NEW)
    assert asked("import")["totals"]["updated"] == 1
    assert said_of_tasks(target) == ["new"]


def test_machines_whose_clocks_are_hours_apart_keep_the_order(machines, target, monkeypatch, take):
    """SCALE-03, LEDGER-08: a file that came to a machine whose clock is behind came later all the same."""
    there, behind = machines.home("there"), machines.home("behind")
    take(there, 0, "tasks-0.csv", "t0,p1,other,requested,dr1")
    set_clock(monkeypatch, timedelta(0))
    machines.asked("there", "import")
    take(there, 0, "tasks-1.csv", OLD)
    take(behind, -120, "tasks-2.csv", NEW)
    feed_of_tasks(there)
    set_clock(monkeypatch, timedelta(0))
    assert machines.asked("there", "import")["totals"]["updated"] == 1
    assert said_of_tasks(target) == ["other", "new"]


def test_an_object_is_taken_once_after_the_clock_was_set_back(beyond, home, target, asked, monkeypatch, take):
    """SCALE-03: files have later times than the ledger until it has caught up with them."""
    set_clock(monkeypatch, timedelta(0))
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    asked("import")
    take(home, 120, "tasks-1.csv", NEW)
    set_clock(monkeypatch, timedelta(0))
    beyond.put("payments-2.csv", "k2,p1,1.00,2026-03-01,")
    assert [len(asked("import")["batches"]) for _ in range(3)] == [2, 0, 0]


def test_files_that_came_while_the_clock_was_ahead_go_before_those_that_come_now(
    home, target, asked, chartferry, monkeypatch, take
):
    """RECEIVE-01: a home without a ledger has nothing but its files by which this is told."""
    ahead = take(home, DAYS, "tasks-1.csv", OLD)
    set_clock(monkeypatch, timedelta(0))
    (path := home / "inbox" / "tasks-2.csv").write_text(f"{TASKS}\n{NEW}\n")
    code, out, _ = chartferry("import", path)
    assert code
    assert f"and a file came at {ahead:%Y-%m-%dT%H:%M}" in out
    asked("import", "--clock-is-right", "--why", "it was days ahead")
    assert said_of_tasks(target) == ["new"]
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        assert max(row["received_at"] for row in ledger.batches()) < f"{ahead:%Y-%m-%dT%H:%M}"


def test_a_receipt_mark_that_cannot_be_removed_is_reported(home, chartferry, take):
    """RECEIVE-01"""
    take(home, DAYS, "tasks-1.csv", OLD)
    (home / "batches" / ".received").unlink()
    (home / "batches" / ".received").mkdir()
    code, _, said = chartferry("import", "--clock-is-right")
    assert (code, "must be able to write there" in said) == (4, True)
