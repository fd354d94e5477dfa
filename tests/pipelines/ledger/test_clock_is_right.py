"""`import --clock-is-right`: it waits for nobody who is dead, and what came while the clock was ahead came before."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.ledger import clock
from pipelines.ledger.ledger import Ledger
from tests.support.publishing import publish_last_target, publish_only
from tests.support.setting_clocks import set_clock
from tests.support.updated_tasks import TASKS, feed_of_tasks

HEAD = "payment_id,patient_id,amount,paid_on,claim_id"
AHEAD = timedelta(days=4)
BEATS = "UPDATE {} SET heartbeat_at = 'beat ' || hex(randomblob(8))"


@pytest.fixture
def held(request, home: Path, asked, monkeypatch) -> Path:
    """A ledger that is days ahead of the clock, whose target, or a part of it, a process of another machine holds."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 0.4)
    monkeypatch.setattr("pipelines.importing.clock.SECONDS_BETWEEN_LOOKS", 0.05)
    set_clock(monkeypatch, AHEAD)
    (home / "inbox" / "payments-1.csv").write_text(f"{HEAD}\nk1,p1,1.00,2026-03-01,\n")
    asked("import")
    set_clock(monkeypatch, timedelta(0))
    (home / "inbox" / "payments-2.csv").write_text(f"{HEAD}\nk2,p1,2.00,2026-03-01,\n")
    with closing(sqlite3.connect(home / "ledger.db")) as driver, driver:
        [[target]] = driver.execute("SELECT target_id FROM target")
        row = {"target": target, "owner": "owner", "host": "elsewhere", "machine": "boot/pid", "pid": 7}
        row |= {"taken_at": "then", "heartbeat_at": "then"}
        if request.param == "part":
            row |= {"part": 1, "attempts": 1}
        values = ", ".join("?" * len(row))
        driver.execute(f"INSERT INTO {request.param} ({', '.join(row)}) VALUES ({values})", [*row.values()])
    return home


@pytest.mark.alike
@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("held", ["lease", "part"], indirect=True)
def test_a_silent_loader_does_not_hold_up_clock_is_right(chartferry):
    """LEDGER-01, CLI-CMD-17: no load could begin either, which would take its place."""
    assert chartferry("import")[0] == 6
    code, out, said = chartferry("import", "--clock-is-right")
    assert code == 0
    assert "process 7 on elsewhere holds this target: waiting up to a minute to see if it is still running" in said
    assert "payments-" in out
    assert [row["created"] for row in json.loads(chartferry("status", "--json")[1])["batches"]] == [1, 1]


@pytest.mark.alike
@pytest.mark.parametrize("held", ["lease", "part"], indirect=True)
def test_clock_is_right_does_not_take_over_from_a_loader_with_a_heartbeat(request, held, chartferry):
    """LEDGER-01"""
    table, ended = request.node.callspec.params["held"], threading.Event()

    def beat() -> None:
        with closing(sqlite3.connect(held / "ledger.db")) as driver:
            while not ended.wait(0.02):
                with driver:
                    driver.execute(BEATS.format(table))

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        code, _, said = chartferry("import", "--clock-is-right")
    finally:
        ended.set()
        beating.join()
    assert (code, "process 7 on elsewhere is loading into this target" in said) == (4, True)
    with closing(Ledger.open(held / "ledger.db")) as ledger:
        assert ledger.decisions() == []
    assert chartferry("import", "--clock-is-right")[0] == 0


def test_an_older_file_that_comes_again_takes_nothing_back(home, target, asked, monkeypatch):
    """LEDGER-08: it was loaded while the clock was ahead, and what changed it came after that, at an earlier time."""
    feed_of_tasks(home)

    def put(name: str, said: str) -> None:
        (home / "inbox" / name).write_text(f"{TASKS}\nt1,p1,{said},requested,dr1\n")

    set_clock(monkeypatch, AHEAD)
    put("tasks-1.csv", "old")
    asked("import")
    set_clock(monkeypatch, timedelta(0))
    put("tasks-2.csv", "new")
    asked("import", "--clock-is-right")
    put("tasks-1.csv", "old")
    [batch] = (again := asked("import"))["batches"]
    assert again["totals"]["skipped"] == 1
    assert batch["message"] == (
        f"{batch['batch_id']}: 1 row was skipped, since a later file changed its record; to go back to what this file"
        " says, put that row into another file"
    )
    assert [task["description"] for task in target.of("Task")] == ["new"]


@pytest.fixture(params=["in a file", "on a server"])
def place(request, home) -> Iterator[Path | str]:
    """The address of the ledger of the home."""
    if request.param == "in a file":
        yield home / "ledger.db"
        return
    model = request.getfixturevalue("ledger_on_server")
    with request.getfixturevalue("postgres").database(like=model) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHARTFERRY_LEDGER", url)
        yield url


@pytest.mark.alike
def test_a_correction_closes_a_reject_from_while_the_clock_was_ahead(place, home, asked):
    """LEDGER-08, REJECT-04: otherwise the wrong amount would still count as refused, and as received."""
    with pytest.MonkeyPatch.context() as patch:
        set_clock(patch, AHEAD)
        patch.setattr(clock, "ASKED", clock.ASKED.replace("()", "() + interval '4 days'", 1))
        for number, amount in enumerate(("-5.00", "-6.00"), 1):
            (home / "inbox" / f"payments-{number}.csv").write_text(f"{HEAD}\nk1,p1,{amount},2026-03-01,\n")
            asked("import")
        publish_at(place, home)
    (home / "inbox" / "payments-3.csv").write_text(f"{HEAD}\nk1,p1,5.00,2026-03-01,\n")
    assert asked("import", "--clock-is-right")["totals"]["created"] == 1
    with closing(Ledger.open(place)) as ledger:
        assert [row["file_name"] for row in ledger.batches()] == [f"payments-{number}.csv" for number in (1, 2, 3)]
    publish_at(place, home)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        assert tables.sql("SELECT DISTINCT state FROM reject").fetchall() == [("closed",)]
        assert tables.sql("SELECT source_key, fate FROM payment").fetchall() == [("k1", "created")]
        told = tables.sql("SELECT received::VARCHAR, created::VARCHAR FROM payment_reconciliation").fetchall()
        assert told == [("5.00", "5.00")]
        assert tables.sql("SELECT batches FROM publication ORDER BY published_at").fetchall() == [(2,), (3,)]


def publish_at(place: Path | str, home: Path) -> None:
    with closing(Ledger.open(place)) as ledger, pytest.MonkeyPatch.context() as patch:
        publish_only(patch, "payment_reconciliation", "reject", "payment", "publication")
        publish_last_target(home, ledger)


def test_a_process_that_was_at_work_goes_on_from_the_time_that_is_right(home, asked, chartferry, monkeypatch):
    """LEDGER-01: one that validates holds no lease yet. Its times ahead would have the next import refused again."""
    set_clock(monkeypatch, AHEAD)
    (home / "inbox" / "payments-1.csv").write_text(f"{HEAD}\nk1,p1,1.00,2026-03-01,\n")
    asked("import")
    with closing(Ledger.open(home / "ledger.db")) as at_work:
        [batch] = at_work.batches()
        at_work.start_run(batch["target"], batch["batch_id"])
        set_clock(monkeypatch, timedelta(0))
        assert chartferry("import", "--clock-is-right")[0] == 0
        at_work.finish_batch(batch["target"], batch["batch_id"], "finished")
    (home / "inbox" / "payments-2.csv").write_text(f"{HEAD}\nk2,p1,2.00,2026-03-01,\n")
    assert asked("import")["exit_code"] == 0


def test_a_record_made_while_the_clock_was_ahead_does_not_close_a_later_reject(
    home: Path, asked, chartferry, monkeypatch
):
    """LEDGER-07: a correction under its key has another content, and is set aside."""

    def take(name: str, *lines: str) -> None:
        (home / "inbox" / name).write_text("".join(f"{line}\n" for line in lines))
        asked("import")

    set_clock(monkeypatch, AHEAD)
    take("payments-1.csv", HEAD, "k1,p1,x,2026-03-01,")
    take("payments-2.csv", HEAD, "k9,p1,9.00,2026-03-01,")
    set_clock(monkeypatch, timedelta(0))
    assert chartferry("import", "--clock-is-right")[0] == 0
    rejects = "SELECT reject_id, state FROM reject"
    with closing(sqlite3.connect(home / "ledger.db")) as driver:
        [(name, _)] = driver.execute(rejects).fetchall()
    take("payments-3.csv", f"_reject_id,_reasons,{HEAD}", f"{name},,k9,p1,1.00,2026-03-01,")
    with closing(sqlite3.connect(home / "ledger.db")) as driver:
        assert driver.execute(rejects).fetchall() == [(name, "open")]
