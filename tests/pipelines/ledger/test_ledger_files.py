"""A ledger in a file: new, unreadable, of an earlier or a newer version, and made by several processes at once."""

import multiprocessing
import sqlite3
from contextlib import closing
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from pipelines.ledger import database
from pipelines.ledger import tables as t
from pipelines.ledger.former_versions import plan_anew
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome, Repeat
from pipelines.ledger.tables import LedgerError
from tests.pipelines.conftest import Clock
from tests.support.earlier import make_earlier
from tests.support.ledgers import OF, PAID, TARGET, intent, start, states


def test_a_ledger_from_a_newer_version_is_refused(ledger: Ledger, address: str | Path) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(t.schema_version.update().values(version=99))
    with pytest.raises(LedgerError, match=r"newer version \(.*\): use that version of Chartferry"):
        Ledger.open(address)


@pytest.mark.crossed
@pytest.mark.parametrize("version", [1, *(pytest.param(each, marks=pytest.mark.long) for each in range(2, 8)), 8])
def test_a_ledger_of_an_earlier_version_keeps_all_it_knows(
    ledger: Ledger, address: str | Path, clock: Clock, version: int
) -> None:
    """LEDGER-01, STATE-HOME-02: a home of an earlier version is opened as it is, and goes on."""
    start(ledger, "payments-a", "payments-b")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent(f"k{n}", n) for n in range(2, 7)])
        ledger.settle(TARGET, *OF, [Outcome(f"k{n}", 1, "created", f"id-{n}", 201) for n in range(2, 6)])
    ledger.note_repeats(TARGET, *OF, "payments-b", [Repeat(2, "k2", "unchanged", "id-2", "p1", PAID, 1050)])
    before = {
        name: table.sort_by("line").to_pylist()
        for name, table in ledger.tables().items()
        if "line" in table.schema.names
    }
    make_earlier(ledger, version)
    later = Ledger.open(address, clock)
    after = later.tables()
    assert {name: after[name].sort_by("line").to_pylist() for name in before} == before
    assert [len(before[name]) for name in ("record", "repeat")] == [5, 1]
    with later.lease(TARGET) as lease:
        later.intend(lease, *OF, [intent("k7", 7, batch="payments-b")])
        later.intend_again(lease, *OF, [intent("k6", 6)])
    assert states(later, "k2", "k6", "k7") == ["created", "sending", "sending"]
    later.close()


@pytest.mark.by_hand
def test_a_ledger_of_version_4_learns_when_each_key_was_first_sent(
    ledger: Ledger, address: str | Path, clock: Clock
) -> None:
    """LEDGER-21: of a key that was sent again by hand the batch's time is what is left."""
    received = ledger.now()
    ledger.start_batch(TARGET, "payments-a")
    clock.now += timedelta(hours=1)
    first = ledger.now()
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent(key, line) for line, key in enumerate(("plain", "resent", "again"), 2)])
        clock.now += timedelta(hours=1)
        plan_anew(ledger, lease, [(*OF, "resent", 1)], None)
        plan_anew(ledger, lease, [(*OF, "again", 1)], "gone")
        ledger.intend_again(lease, *OF, [intent("resent", 3, generation=2), intent("again", 3)])
    before = first_sent(ledger)
    assert before == {"plain": first, "resent": first, "again": first}
    make_earlier(ledger, 4)
    with closing(Ledger.open(address, clock)) as later:
        assert first_sent(later) == before | {"resent": received}
        assert later.tables()["former"].column("first_sent_at").to_pylist() == [first]


def first_sent(ledger: Ledger) -> dict[str, str]:
    return {row["key"]: row["first_sent_at"] for row in ledger.tables()["record"].to_pylist()}


def test_a_file_that_is_no_ledger_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("not a database, surely")
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be opened: file is not a database$"):
        Ledger.open(tmp_path / "ledger.db")


@pytest.mark.parametrize("named", [Path, str])
def test_a_ledger_is_at_its_path_whatever_signs_are_in_it(tmp_path: Path, named: type) -> None:
    """STATE-HOME-02: in a URL, `?` and `%` would make another path of it, outside of the home."""
    path = tmp_path / "100%20 a?b #;'c" / "ledger.db"
    path.parent.mkdir()
    Ledger.open(named(path)).close()
    assert path.is_file()
    assert list(tmp_path.iterdir()) == [path.parent]


def test_a_reader_of_a_ledger_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    """CLI-CMD-03: an importer may be stopped in the middle of a commit, and a person looks what is the matter."""
    Ledger.open(tmp_path / "ledger.db").close()
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(Ledger.open(tmp_path / "ledger.db")) as ledger:
            assert ledger.batches("http://t") == []


def test_a_writer_waits_for_a_minute_also_in_a_ledger_that_was_opened_before(tmp_path: Path) -> None:
    """Opening alone waits less, and leaves no connection that does."""
    for _ in range(2):
        with closing(Ledger.open(tmp_path / "ledger.db")) as ledger, ledger.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000
            ledger.note_target("urn:t", "http://t")


def test_a_new_ledger_that_another_process_keeps_locked_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database.SQLITE, "busy_timeout", "10")
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"locked: another process writes to it, and has for a minute; try again"):
            Ledger.open(tmp_path / "ledger.db")


def test_a_ledger_that_this_user_may_not_open_says_what_it_takes(tmp_path: Path) -> None:
    """Its -wal and -shm may be closed while the file itself is not."""
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(LedgerError, match=r"unable to open database file \(it, its -wal and -shm"):
        Ledger.open(tmp_path / "ledger.db")


def opened_with_others(paths: list[Path], together: Barrier) -> None:
    try:
        for path in paths:
            together.wait()
            Ledger.open(path).close()
    except BaseException:
        together.abort()
        raise


def test_a_new_ledger_may_be_made_by_several_processes_at_once(tmp_path: Path) -> None:
    """LEDGER-10"""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    together, paths = processes.Barrier(4), [tmp_path / f"ledger-{number}.db" for number in range(20)]
    openers = [processes.Process(target=opened_with_others, args=(paths, together)) for _ in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    assert [opener.exitcode for opener in openers] == [0] * 4


def test_a_command_that_meets_a_locked_ledger_says_that_another_process_writes_to_it(
    home, target, chartferry, monkeypatch
):
    """LEDGER-10: an importer may have been stopped in the middle of a commit."""
    chartferry("import")
    monkeypatch.setitem(database.SQLITE, "busy_timeout", "50")
    holder = sqlite3.connect(home / "ledger.db", isolation_level=None, check_same_thread=False)
    hold = holder.execute
    monkeypatch.setattr("pipelines.verifying.verify.lost_batches", lambda _: list(hold("BEGIN IMMEDIATE")))
    with closing(holder):
        code, out, err = chartferry("verify")
    assert (code, out) == (6, "")
    assert "the ledger could not be read or written: database is locked: another process writes to it" in err


def test_reads_in_one_block_see_one_state_and_a_transaction_sees_its_own_writes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger.open(path)) as ledger, closing(Ledger.open(path)) as other:
        with ledger.reading():
            assert ledger.batches() == []
            other.start_batch(TARGET, "payments-a")
            assert ledger.batches() == []
        assert [batch["batch_id"] for batch in ledger.batches()] == ["payments-a"]
        with ledger.transaction():
            ledger.start_batch(TARGET, "payments-b")
            assert ledger.batch(TARGET, "payments-b")
            assert other.batch(TARGET, "payments-b") is None


def test_statements_compiled_for_one_ledger_file_are_reused_for_another(tmp_path: Path) -> None:
    """Sensors open a ledger each minute."""

    def use(name: str) -> set[object]:
        with closing(Ledger.open(tmp_path / name)) as ledger:
            ledger.note_target(TARGET, "http://127.0.0.1")
            assert ledger.batches(TARGET) == []
        return set(database._COMPILED)

    assert use("one.db") == use("two.db") != set()
