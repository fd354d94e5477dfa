"""A clock that is set back changes nothing: what came later is later. One that is days behind is set right first."""

import gzip
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.dagster.unfinished import begins_ledger
from pipelines.feeds.files.catalog import home_catalog
from pipelines.home.batch import UnreadableFile
from pipelines.importing.current_problems import broken_now
from pipelines.ledger import clock
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.journal import BLOCK, Journal, Position
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import SCHEMA_VERSION, LedgerError
from pipelines.receiving.stage import receive
from tests.support.publishing import publish_last_target, publish_only
from tests.support.setting_clocks import set_clock
from tests.support.updated_tasks import TASKS, feed_of_tasks

PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id"
STEPS = [(0, -10, -20), (0, -10, -10), (600, 0, 590), (-5, -600, -1200)]
"""Minutes by which the clock is off while each of three files is imported."""
TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@pytest.fixture
def night(home, asked, monkeypatch):
    """Imports a file of these rows while the clock is off by some minutes."""

    def night(minutes, name, head, *rows):
        set_clock(monkeypatch, timedelta(minutes=minutes))
        (home / "inbox" / name).write_text("\n".join([head, *rows, ""]))
        return asked("import")

    return night


def moments(home):
    """The moment of each fact, in the order of the journal."""
    lines = (json.loads(line) for line in (home / JOURNAL).read_text().splitlines())
    return [line["at"] for line in lines if "facts" in line]


def received(home):
    """When the files came, by what the ledger says."""
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        return [row["received_at"] for row in sorted(ledger.batches(), key=lambda row: row["file_name"])]


def stopped(home):
    """The files that were not loaded, and have records that nothing answers."""
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        return broken_now(ledger, home, ledger.clock())["payments"].failed


@pytest.mark.alike
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_a_correction_closes_what_it_corrects_and_counts_once(home, night, monkeypatch, steps):
    """LEDGER-08, REJECT-04: the record of the corrected file is there, and nothing of the first one is open."""
    night(steps[0], "payments-1.csv", PAYMENTS, "k1,p1,-5.00,2026-03-01,")
    found = night(steps[1], "payments-2.csv", PAYMENTS, "k1,p1,5.00,2026-03-01,")
    assert found["totals"]["created"] == 1
    with closing(Ledger.open(home / "ledger.db")) as ledger, pytest.MonkeyPatch.context() as patch:
        publish_only(patch, "payment_reconciliation", "reject")
        publish_last_target(home, ledger)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        assert tables.sql("SELECT state FROM reject").fetchall() == [("closed",)]
        assert tables.sql("SELECT source_key, fate FROM payment").fetchall() == [("k1", "created")]
        assert tables.sql("SELECT sum(difference)::VARCHAR FROM payment_reconciliation").fetchall() == [("0.00",)]
    assert moments(home) == sorted(moments(home))


@pytest.mark.alike
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_an_older_file_does_not_undo_a_newer_change_although_the_clock_was_set_back(home, target, night, steps):
    """LEDGER-08"""
    feed_of_tasks(home)
    old, new = "t1,p1,old,requested,dr1", "t1,p1,new,requested,dr1"
    night(steps[0], "tasks-1.csv", TASKS, old)
    assert night(steps[1], "tasks-2.csv", TASKS, new)["totals"]["updated"] == 1
    assert night(steps[2], "tasks-3.csv", TASKS, old)["totals"]["skipped"] == 1
    assert [task["description"] for task in target.of("Task")] == ["new"]
    assert received(home) == sorted(received(home))


@pytest.mark.alike
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_a_stopped_file_is_answered_by_one_that_came_later(home, night, steps):
    """CHECK-01: not by one that came before it."""
    night(steps[0], "payments-0.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    (home / "inbox" / "payments-1.csv.control.json").write_text('{"rows": 7}')
    night(steps[1], "payments-1.csv", PAYMENTS, "k1,p1,2.00,2026-03-01,", "k2,p1,2.00,2026-03-01,")
    assert len(stopped(home)) == 1
    night(steps[2], "payments-2.csv", PAYMENTS, "k1,p1,3.00,2026-03-01,", "k2,p1,2.00,2026-03-01,")
    assert not stopped(home)


def test_files_that_wait_keep_the_order_in_which_they_came(home, night, monkeypatch):
    """RECEIVE-01: though the clock was set back between two of which nothing was written yet."""
    night(0, "payments-1.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    [feed] = [each for each in home_catalog(home, {}).feeds if each.name == "payments"]
    came = list[datetime]()
    for number, minutes in enumerate((-10, -20, -20), 2):
        set_clock(monkeypatch, timedelta(minutes=minutes))
        (path := home / "inbox" / f"payments-{number}.csv").write_text(f"{PAYMENTS}\nk{number},p1,1.00,2026-03-01,\n")
        came.append(receive(path, feed, home).received_at)
    night(-30, "payments-5.csv", PAYMENTS, "k5,p1,1.00,2026-03-01,")
    times = received(home)
    assert times[1:4] == [at.strftime(TIME) for at in came]
    assert times == sorted(set(times))


def test_a_clock_that_is_days_behind_is_set_right_first(home, target, night, chartferry, asked, monkeypatch):
    """LEDGER-01: what would be sent has the wrong date, and comes before what it follows."""
    night(0, "payments-1.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    last = moments(home)[-1]
    set_clock(monkeypatch, -timedelta(days=3))
    (home / "inbox" / "payments-2.csv").write_text(f"{PAYMENTS}\nk2,p1,2.00,2026-03-01,\n")
    before = target.writes
    code, _, said = chartferry("import")
    assert code == 6
    assert f"the ledger has facts of {last}: set the clock right" in said
    assert target.writes == before
    assert chartferry("status")[0] == 0
    set_clock(monkeypatch, timedelta(0))
    assert asked("import")["totals"]["created"] == 1


def test_a_clock_that_was_days_ahead_is_confirmed_once_by_a_person(home, night, chartferry, asked, monkeypatch):
    """LEDGER-01, DECIDE-01: the decision is recorded."""
    night(4 * 24 * 60, "payments-1.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    last = moments(home)[-1]
    set_clock(monkeypatch, timedelta(0))
    (home / "inbox" / "payments-2.csv").write_text(f"{PAYMENTS}\nk2,p1,2.00,2026-03-01,\n")
    assert chartferry("import")[0] == 6
    assert "--dry-run exclude each other" in chartferry("import", "--dry-run", "--clock-is-right")[2]
    found = asked("import", "--clock-is-right", "--why", "its battery was empty")
    assert found["totals"]["created"] == 1
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [decision] = ledger.decisions()
        assert decision["command"] == "import --clock-is-right"
        assert decision["subject"] >= last
        assert decision["why"] == "its battery was empty"
    assert moments(home)[-1] < last
    (home / "inbox" / "payments-3.csv").write_text(f"{PAYMENTS}\nk3,p1,3.00,2026-03-01,\n")
    assert asked("import")["totals"]["created"] == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_ledger_that_is_made_again_goes_on_from_the_journals_last_line(home, night, chartferry, asked, lost):
    """LEDGER-01: from no line before it, which a person said was of a wrong time."""
    night(4 * 24 * 60, "payments-1.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    ahead = moments(home)[-1]
    if lost:
        (home / "ledger.db").unlink()
    (home / "inbox" / "payments-2.csv").write_text(f"{PAYMENTS}\nk2,p1,2.00,2026-03-01,\n")
    with pytest.MonkeyPatch.context() as patch:
        set_clock(patch, timedelta(0))
        assert chartferry("status")[0] == 0
        assert chartferry("import")[0] == 6
        assert asked("import", "--clock-is-right")["totals"]["created"] == 1
        (home / "ledger.db").unlink()
        (home / "inbox" / "payments-3.csv").write_text(f"{PAYMENTS}\nk3,p1,3.00,2026-03-01,\n")
        assert asked("import")["totals"]["created"] == 1
    assert moments(home)[-1] < ahead
    assert max(received(home)[1:]) < ahead


def test_a_ledger_without_a_target_also_refuses_a_clock_that_is_days_behind(home, asked, chartferry, monkeypatch):
    """LEDGER-01: a file was received while the target was away."""
    set_clock(monkeypatch, timedelta(days=4))
    (home / "inbox" / "payments-1.csv").write_text(f"{PAYMENTS}\nk1,p1,1.00,2026-03-01,\n")
    [feed] = [each for each in home_catalog(home, {}).feeds if each.name == "payments"]
    receive(home / "inbox" / "payments-1.csv", feed, home)
    assert begins_ledger(home, {})
    set_clock(monkeypatch, timedelta(0))
    assert chartferry("import")[0] == 6
    assert asked("import", "--clock-is-right")["totals"]["created"] == 1


def test_clock_is_right_is_refused_while_a_load_is_under_way(home, night, chartferry):
    """LEDGER-01: the load continues from the times that it knows."""
    night(0, "payments-1.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [(target,)] = ledger.rows("SELECT target_id FROM target", ())
        with ledger.lease(target):
            code, _, said = chartferry("import", "--clock-is-right")
        assert (code, "is loading into this target" in said) == (4, True)
        assert ledger.decisions() == []


def test_no_file_is_taken_in_while_the_clock_is_days_behind(home, night, monkeypatch):
    """RECEIVE-01: it would seem to have come before those that did."""
    night(0, "payments-1.csv", PAYMENTS, "k1,p1,1.00,2026-03-01,")
    (path := home / "inbox" / "payments-2.csv").write_text(f"{PAYMENTS}\nk2,p1,2.00,2026-03-01,\n")
    [feed] = [each for each in home_catalog(home, {}).feeds if each.name == "payments"]
    set_clock(monkeypatch, -timedelta(days=3))
    with pytest.raises(UnreadableFile, match=r"payments-2\.csv: not taken in, since the clock shows"):
        receive(path, feed, home)
    assert path.exists()


def without_moment(journal: Path) -> None:
    """The newest segment as an earlier version left it: a head alone, which says no time."""
    head = json.loads(journal.read_text().splitlines()[0])
    lines = journal.read_text().splitlines()[1:]
    closed = journal.with_suffix("")
    closed.mkdir()
    (closed / "000001.ndjson.gz").write_bytes(gzip.compress(journal.read_bytes()))
    head |= {"segment": 2, "after": len(lines)}
    del head["at"]
    journal.write_text(json.dumps(head, separators=(",", ":")) + "\n")
    with closing(sqlite3.connect(journal.with_name("ledger.db"))) as ledger, ledger:
        ledger.execute('UPDATE position SET segment = 2, "end" = ?', (journal.stat().st_size,))


def of_an_earlier_schema(journal: Path) -> None:
    """A journal for tables of the version before."""
    head, rest = journal.read_text().split("\n", 1)
    journal.write_text(head.replace(f'"schema":{SCHEMA_VERSION}', f'"schema":{SCHEMA_VERSION - 1}') + "\n" + rest)


@pytest.mark.alike
@pytest.mark.parametrize("left", [without_moment, of_an_earlier_schema, Path.unlink], ids=lambda each: each.__name__)
def test_a_ledger_without_a_note_of_its_last_moment_takes_it_from_the_journal_or_the_tables(
    tmp_path, monkeypatch, left
):
    """LEDGER-01"""
    with closing(Ledger.open(tmp_path / "ledger.db")) as ledger:
        ledger.note_target("one", "http://one")
        ledger.start_batch("one", "payments-1", feed="payments", source="s", resource_type="PaymentNotice")
        ahead = moments(tmp_path)[-1]
    left(tmp_path / JOURNAL)
    set_clock(monkeypatch, -timedelta(hours=5))
    with closing(Ledger.open(tmp_path / "ledger.db", anew=True)) as ledger:
        ledger.note_target("two", "http://two")
        assert seen(ledger)[-1][1] >= ahead
    set_clock(monkeypatch, -timedelta(days=5))
    with closing(Ledger.open(tmp_path / "ledger.db", anew=True)) as ledger, pytest.raises(LedgerError):
        ledger.note_target("three", "http://three")


def test_without_its_journal_a_ledger_takes_its_last_moment_from_its_newest_row(address, monkeypatch):
    """LEDGER-01: a load that was killed may have written nothing but rows for hours."""
    with closing(Ledger.open(address)) as ledger:
        ledger.note_target("one", "http://one")
        set_clock(monkeypatch, timedelta(hours=5))
        monkeypatch.setattr(clock, "ASKED", clock.ASKED.replace("()", "() + interval '5 hours'", 1))
        ledger.engine.dispose()
        ledger.note_mark("one", "payments", "hash", "payments-1", "number", "7")
        [(ahead,)] = ledger.rows("SELECT noted_at FROM query_mark", ())
        with ledger.transaction() as connection:
            connection.exec_driver_sql("DELETE FROM journal")
    monkeypatch.undo()
    if isinstance(address, Path):
        address.with_name(JOURNAL).unlink()
    with closing(Ledger.open(address, anew=True)) as ledger:
        ledger.note_target("two", "http://two")
        assert ledger.rows("SELECT first_seen_at FROM target WHERE target_id = 'two'", ())[0][0] >= ahead


def test_a_damaged_time_in_the_last_journal_line_is_reported(tmp_path):
    """LEDGER-01"""
    with closing(Ledger.open(tmp_path / "ledger.db")) as ledger:
        ledger.note_target("one", "http://one")
    text = (tmp_path / JOURNAL).read_text()
    (tmp_path / JOURNAL).write_text(text.replace(moments(tmp_path)[-1], "2026-13-41T00:00:00.000000Z"))
    with pytest.raises(LedgerError, match="its last line is damaged"):
        Ledger.open(tmp_path / "ledger.db")


def test_clock_is_right_does_nothing_in_a_home_without_a_ledger(home, asked):
    assert asked("import", "--clock-is-right")["exit_code"] == 0


# -- the last line of a journal


def seen(ledger: Ledger) -> list[tuple[str, str]]:
    """The targets in the order in which they were noted, and when."""
    return [(name, at) for name, at in ledger.rows("SELECT target_id, first_seen_at FROM target ORDER BY rowid", ())]


@pytest.fixture
def long_lines(tmp_path: Path) -> Journal:
    """A journal with a line beyond a block, and one behind it."""
    journal = Journal(tmp_path / JOURNAL)
    begun = journal.begin(None, "2026-01-01T00:00:00.000000Z", [])
    after = journal.append(begun, "2026-01-02T00:00:00.000000Z", [["x", "y" * (3 * BLOCK)]])
    journal.append(after, "2026-01-03T00:00:00.000000Z", [["z"]])
    return journal


def test_the_moment_of_the_last_line_is_read_from_its_end(long_lines: Journal) -> None:
    size = long_lines.path.stat().st_size
    assert Journal(long_lines.path).newest_at().startswith("2026-01-03")
    with long_lines.path.open("r+b") as file:
        file.truncate(size - 5)
    assert Journal(long_lines.path).newest_at().startswith("2026-01-02")
    with long_lines.path.open("r+b") as file:
        file.truncate(BLOCK)
    assert Journal(long_lines.path).newest_at().startswith("2026-01-01")
    with pytest.raises(LedgerError):
        long_lines.last_at(Position("of a file that was replaced meanwhile", 1, 1, size))
    long_lines.path.write_bytes(b"")
    assert Journal(long_lines.path).newest_at() == ""


@pytest.mark.parametrize("segment", [1, 1 << 20])
def test_a_process_continues_from_the_last_moment_that_another_wrote(tmp_path, monkeypatch, segment):
    """LEDGER-01: also right after a segment was closed."""
    monkeypatch.setattr("pipelines.ledger.journal.BYTES_A_SEGMENT", segment)
    with closing(Ledger.open(tmp_path / "ledger.db")) as first:
        first.note_target("one", "http://one")
        set_clock(monkeypatch, timedelta(hours=3))
        with closing(Ledger.open(tmp_path / "ledger.db")) as other:
            other.note_target("two", "http://two")
            [ahead] = [at for name, at in seen(other) if name == "two"]
        set_clock(monkeypatch, timedelta(0))
        first.note_target("three", "http://three")
        assert seen(first) == sorted(seen(first), key=lambda each: each[1])
        assert ahead < seen(first)[-1][1] <= first.now()


def test_the_ledger_clock_advances_while_the_system_clock_catches_up(tmp_path, monkeypatch):
    """LEDGER-03: a wait of a certain length ends."""
    with closing(Ledger.open(tmp_path / "ledger.db")) as ledger:
        before = ledger.clock()
        set_clock(monkeypatch, -timedelta(hours=1))
        at = time.monotonic
        monkeypatch.setattr("pipelines.ledger.clock.time.monotonic", lambda: at() + 90)
        assert timedelta(seconds=90) <= ledger.clock() - before < timedelta(seconds=120)
        assert datetime.now(UTC) < ledger.clock()
