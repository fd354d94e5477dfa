"""A ledger on PostgreSQL that was restored from a backup, or is an empty database, beside newer batches at a store."""

import os
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import event

from pipelines.home.stores import store_at
from pipelines.ledger.journal_sync import NUMBERED
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import SCHEMA_VERSION
from tests.pipelines.ledger.test_postgresql_ledger import plain
from tests.support.journals import leave_closed
from tests.support.machines import Machines, amounts
from tests.support.replaying import rows_of

FIRST, SECOND, THIRD = "k1,p1,1.00,2026-03-01,\n", "k2,p1,2.00,2026-03-02,\n", "k3,p2,3.00,2026-03-03,\n"
BEHIND = "the ledger was older than the copies of its journal"


@pytest.fixture
def yesterday(postgres, monkeypatch):
    """Back the ledger up; a call of what that gives restores it into a database of its own."""
    with postgres.database() as restored:

        def back_up():
            postgres.copy_to(postgres, os.environ["CHARTFERRY_LEDGER"], restored)
            return lambda: monkeypatch.setenv("CHARTFERRY_LEDGER", restored)

        yield back_up


def rows() -> dict[str, object]:
    with closing(Ledger.open(os.environ["CHARTFERRY_LEDGER"])) as ledger:
        return dict(rows_of(ledger))


def imported(machines: Machines, name: str, rows: str) -> int:
    machines.put(name, rows, file=f"payments-{rows[:2]}.csv")
    return int(machines.asked(name, "import")["totals"]["created"])


def is_whole(machines: Machines, target) -> None:
    """Nothing of the three files is sent again, and all agrees."""
    machines.put("last", FIRST + SECOND + THIRD)
    again = machines.asked("last", "import")["totals"]
    assert (again["created"], again["adopted"], again["unchanged"]) == (0, 0, 3)
    assert machines.asked("last", "verify")["differences"] == []
    assert amounts(target) == [1.0, 2.0, 3.0]


@pytest.mark.crossed
def test_a_ledger_of_yesterday_is_brought_up_to_the_copies_of_its_journal(machines, target, yesterday, additions):
    """LEDGER-20, SCALE-03: also once more, by copies that go on where they ended."""
    assert imported(machines, "one", FIRST) == 1
    restore = yesterday()
    assert imported(machines, "two", SECOND) == 1
    before = rows()
    restore()
    assert BEHIND in machines.does("three", "status")[2] + machines.does("three", "import")[2]
    assert rows() == before
    assert imported(machines, "three", THIRD) == 1
    assert BEHIND not in machines.does("four", "import")[2]
    is_whole(machines, target)


def test_a_restored_ledger_that_was_written_to_is_refused_beside_newer_copies(machines, target, yesterday):
    """LEDGER-20: an earlier version wrote without a look at the copies. Nothing is sent."""
    imported(machines, "one", FIRST)
    restore = yesterday()
    imported(machines, "two", SECOND)
    restore()
    with closing(Ledger.open(os.environ["CHARTFERRY_LEDGER"])) as ledger:
        ledger.note_target("urn:other", "http://other")
    machines.put("three", THIRD)
    code, out, err = machines.does("three", "import")
    assert (code, out) == (6, "")
    assert "are not of one history: restore the newest backup of its database" in err
    assert amounts(target) == [1.0, 2.0]


@pytest.mark.long
def test_without_the_copies_a_ledger_of_yesterday_sends_nothing_twice(machines, target, yesterday, additions):
    """LEDGER-20, SCALE-03: a bare target gets nothing before somebody has looked."""
    imported(machines, "one", FIRST)
    restore = yesterday()
    imported(machines, "two", SECOND)
    restore()
    store = store_at(machines.place)
    store.remove([f"journal/{name}" for name in store.names("journal/")])
    machines.put("three", SECOND + THIRD)
    code, out, _ = machines.does("three", "import")
    if not additions:
        assert code != 0
        assert "the ledger does not know that: chartferry verify --adopt" in out
        assert amounts(target) == [1.0, 2.0]
        machines.does("three", "verify", "--adopt")
        machines.does("three", "doubts", "resolve")
        machines.does("three", "import")
    assert amounts(target) == [1.0, 2.0, 3.0]
    is_whole(machines, target)


@pytest.mark.long
def test_an_empty_database_beside_batches_of_a_lost_one_is_refused_and_made_again_from_the_copies(
    machines, target, postgres, monkeypatch, additions
):
    """LEDGER-20, SCALE-03: numbers that a server left out, as it does after a crash, are those of the copies."""
    with psycopg.connect(plain(os.environ["CHARTFERRY_LEDGER"]), autocommit=True) as database:
        Ledger.open(os.environ["CHARTFERRY_LEDGER"]).close()
        database.execute("SELECT setval(pg_get_serial_sequence('journal', 'number'), 40)")
        imported(machines, "one", FIRST)
        database.execute("SELECT setval(pg_get_serial_sequence('journal', 'number'), 100)")
        imported(machines, "two", SECOND)
    store = store_at(machines.place)
    for machine in ("three", "four"):
        before = rows()
        monkeypatch.setenv("CHARTFERRY_LEDGER", postgres.create())
        code, out, err = machines.does(machine, "import")
        assert (code, out) == (6, "")
        assert "another deployment keeps its batches there (_owner.json)" in err
        assert "copy journal/ there to batches/journal" in err
        copies = machines.home(machine) / "batches" / "journal"
        copies.mkdir(parents=True)
        for name in store.names("journal/"):
            store.fetch(f"journal/{name}", copies / name)
        assert machines.asked(machine, "verify")["differences"] == []
        assert rows() == before
        imported(machines, machine, THIRD)
        is_whole(machines, target)


def test_numbers_of_the_journal_are_in_the_order_of_commits(postgres):
    """LEDGER-20: so that a backup that has a line has all before it. Nobody takes a number until the last is there."""
    with postgres.database() as url, closing(Ledger.open(url)) as ledger:
        taken = []

        def look(_):
            with psycopg.connect(plain(url)) as other, pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("LOCK TABLE journal IN ROW EXCLUSIVE MODE NOWAIT")
            taken.append(True)

        ledger.note_target("urn:t", "http://t")
        event.listen(ledger.engine, "commit", look)
        ledger.note_target("urn:u", "http://u")
        assert taken


def test_a_command_moves_no_number_that_another_process_has_taken_and_not_committed(machines, target):
    """LEDGER-20: the server's numbering is its own, as long as the ledger has what the copies have."""
    imported(machines, "one", FIRST)
    takes = ", ".join(f"nextval(pg_get_serial_sequence('{table}', '{column}'))" for table, column in NUMBERED)
    with psycopg.connect(plain(os.environ["CHARTFERRY_LEDGER"]), autocommit=True) as other:
        before = other.execute(f"SELECT {takes}").fetchall()[0]
        assert machines.does("two", "import")[0] == 0
        after = other.execute(f"SELECT {takes}").fetchall()[0]
    assert len(before) >= 5
    assert all(was < now for was, now in zip(before, after, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("decision", [("rejects", "discard", "nothing", "--why", "x"), ("import", "--clock-is-right")])
def test_a_decision_by_hand_follows_the_facts_of_the_journal_copies(machines, target, yesterday, decision):
    """LEDGER-20: a command without a target takes them up too, before it writes."""
    imported(machines, "one", FIRST)
    restore = yesterday()
    imported(machines, "two", SECOND)
    restore()
    machines.does("three", *decision)
    assert imported(machines, "three", THIRD) == 1
    is_whole(machines, target)


def test_a_ledger_that_began_with_an_image_goes_on_after_it_was_made_again(postgres, tmp_path):
    """LEDGER-20: what is put in by its number leaves the server's own numbering behind it."""
    with postgres.database() as url, postgres.database() as new:
        with closing(Ledger.open(url, journal=False)) as ledger:
            about = {"feed": "f", "source": "s", "resource_type": "PaymentNotice"}
            for batch in ("b1", "b2"):
                ledger.start_batch("t", batch, **about)
            ledger.stream("t", "s", "PaymentNotice")
        with closing(Ledger.open(url, copies=tmp_path)) as ledger:
            ledger.copy_journal()
        with closing(Ledger.open(new, copies=tmp_path)) as ledger:
            assert ledger.start_batch("t", "b3", **about)
            assert ledger.stream("t", "s", "Task") != ledger.stream("t", "s", "PaymentNotice")
            assert [row["batch_id"] for row in ledger.batches("t")] == ["b1", "b2", "b3"]


def test_a_step_of_the_schema_opens_once_the_rejects_that_an_undo_had_left_closed(postgres, tmp_path, monkeypatch):
    """LEDGER-17, LEDGER-20: also in a backup of before it, behind what the copies have; once, as a fact of its own."""
    copies = tmp_path / "batches" / "journal"
    with postgres.database() as url, postgres.database() as backup, postgres.database() as new:
        with closing(Ledger.open(url, copies=copies)) as ledger:
            leave_closed(ledger, monkeypatch)
        with psycopg.connect(plain(url)) as database:
            database.execute("UPDATE schema_version SET version = %s", [SCHEMA_VERSION - 1])
        postgres.copy_to(postgres, url, backup)
        with closing(Ledger.open(url, copies=copies)) as ledger:
            assert [row["state"] for row in ledger.tables()["reject"].to_pylist()] == ["closed"], (
                "till it works with it"
            )
            assert ledger.take_up_journal(tmp_path) == 0
            [row] = ledger.tables()["reject"].to_pylist()
            assert (row["state"], row["closed_by_batch"]) == ("open", None)
            ledger.copy_journal()
            upgraded = rows_of(ledger)
        for address, lines in ((url, 0), (backup, 1), (new, 0)):
            with closing(Ledger.open(address, copies=copies)) as ledger:
                assert [ledger.take_up_journal(tmp_path), ledger.take_up_journal(tmp_path)] == [lines, 0]
                assert rows_of(ledger) == upgraded
                facts = [facts for (facts,) in ledger.rows("SELECT facts FROM journal", ())]
                assert facts.count('[["date_tries"],["open_all_unanswered"]]') == 1
