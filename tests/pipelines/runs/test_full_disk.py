"""A full disk at each stage: one sentence, nothing lost, and the same command continues later."""

import errno
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import duckdb
import pytest
from sqlalchemy.exc import OperationalError

from pipelines.feeds.files.catalog import load_feeds
from pipelines.home import disk, spill
from pipelines.home.batch import UnreadableFile
from pipelines.importing import begin_and_end as import_closing
from pipelines.ledger.database import database_message
from pipelines.ledger.ledger import Ledger
from pipelines.loading.intake import Intake
from pipelines.loading.row import RowResult
from pipelines.receiving import stage as receive
from pipelines.reports import publish
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import TARGET, Work, payment

NOW = datetime(2024, 6, 1, tzinfo=UTC)
ROWS = "payment_id,patient_id,amount,paid_on,claim_id\n" + "".join(f"k{n},p1,1.00,2026-03-01,\n" for n in range(3))


def full(*_: object, **__: object) -> None:
    """Fail as a write does on a disk without space."""
    raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")


def ledger_full(*_: object, **__: object) -> None:
    raise OperationalError("insert", {}, Exception("database or disk is full"))


def tables_full(*_: object, **__: object) -> None:
    raise duckdb.IOException('IO Error: Could not write file "x": No space left on device')


@pytest.mark.parametrize(
    ("where", "name", "fails"),
    [
        pytest.param(receive, "_settle", full, id="receive"),
        pytest.param(spill.ParquetWriter, "add_batch", full, id="validate"),
        pytest.param(Ledger, "intend", ledger_full, id="load"),
        pytest.param(publish, "_build", tables_full, id="publish", marks=pytest.mark.publishes("import_row")),
    ],
)
def test_a_full_disk_gives_one_sentence_and_the_same_command_completes_the_import_later(
    where, name, fails, chartferry, home, target, monkeypatch
):
    """CLI-IMPORT-04: each row is there once in the end, whichever stage met it."""
    (home / "inbox" / "payments.csv").write_text(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(where, name, fails)
        code, out, err = chartferry("import")
    assert code in (4, 6)
    assert disk.FULL in out + err
    assert "fault of this program" not in err
    code, out, err = chartferry("import")
    assert code == 0, out + err
    assert sorted(body["identifier"][0]["value"] for body in target.of("PaymentNotice")) == ["k0", "k1", "k2"]


@pytest.mark.parametrize(("where", "name", "loaded"), [(Ledger, "intend", 1), (import_closing, "retain", 2)])
def test_the_counts_of_files_before_are_shown(where, name, loaded, chartferry, home, target, monkeypatch):
    """Where the disk is full in the load of the second file, or after the publication."""
    for number in (1, 2):
        (home / "inbox" / f"payments{number}.csv").write_text(
            ROWS.replace("k", f"k{number}").replace("1.00", f"{number}.00")
        )
    real, calls = getattr(where, name), count(1)

    def fails(*arguments: object, **named: object) -> object:
        if next(calls) == loaded % 2 + 1:
            ledger_full()
        return real(*arguments, **named)

    monkeypatch.setattr(where, name, fails)
    code, out, _ = chartferry("import")
    assert (code, out.splitlines()[-1]) == (6, f"error: {disk.FULL}")
    assert [line.split()[1] for line in out.splitlines() if " finished " in line] == ["finished"] * loaded


def test_verify_on_a_full_disk_ends_with_the_exit_code_of_an_import_on_one(chartferry, home, target, monkeypatch):
    monkeypatch.setattr("pipelines.verifying.staging.tables", tables_full)
    (home / "inbox" / "payments.csv").write_text(ROWS)
    chartferry("import")
    code, _, err = chartferry("verify")
    assert (code, err.splitlines()[-1]) == (6, f"chartferry: {disk.FULL}")


def test_verify_prints_its_differences_although_their_file_cannot_be_written(chartferry, home, target, monkeypatch):
    """CLI-CMD-17"""
    (home / "inbox" / "payments.csv").write_text(ROWS)
    chartferry("import")
    target.lose(next(iter(target.stored)))
    monkeypatch.setattr("pipelines.home.files.replace_whole", full)
    code, out, err = chartferry("verify")
    assert (code, "gone: payments-" in out, "all differences" in out) == (3, True, False)
    assert "the file of all differences could not be written" in err
    assert not [*home.glob("*differences*")]


@pytest.mark.parametrize("error", [MemoryError(), duckdb.OutOfMemoryException("Out of Memory Error")])
def test_too_little_memory_ends_the_import_with_one_sentence(chartferry, home, target, monkeypatch, error):
    """CLI-IMPORT-04"""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("pipelines.importing.requested_import.import_paths", fails)
    code, _, err = chartferry("import")
    assert (code, "memory did not suffice at requested_import.py" in err, "fault of" in err) == (6, True, False)


def test_a_file_that_does_not_fit_on_the_disk_stays_in_the_inbox_with_its_control_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-01, LEDGER-14: no batch begins without them."""
    feed = load_feeds().named("payments")
    assert feed
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "payments.csv").write_text(ROWS)
    (inbox / "payments.csv.control.json").write_text('{"rows": 3}')
    with monkeypatch.context() as patched:
        settle, files = receive._settle, iter([False, True])
        patched.setattr(receive, "_settle", lambda target: full() if next(files) else settle(target))
        with pytest.raises(UnreadableFile, match="no space left on the disk"):
            receive.receive(inbox / "payments.csv", feed, tmp_path, NOW)
    assert len(list(inbox.iterdir())) == 2
    assert not list(tmp_path.glob("batches/*/source/*"))
    assert not list(tmp_path.glob("batches/.incoming*"))
    taken = receive.receive(inbox / "payments.csv", feed, tmp_path, NOW).path_in_batch
    assert {path.name for path in taken.parent.iterdir()} == {"payments.csv", "payments.csv.control.json"}
    assert not list(inbox.iterdir())


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    """STATE-HOME-03."""
    assert not disk.is_full(PermissionError(errno.EACCES, "Permission denied"))
    assert not disk.is_full(duckdb.IOException("IO Error: No such file"))


def test_a_path_with_the_words_disk_full_is_not_taken_for_a_full_disk(chartferry, home: Path) -> None:
    """STATE-HOME-03."""
    missing = home / "old disk full" / "payments.csv"
    code, _, err = chartferry("import", missing)
    assert (code, disk.FULL in err) == (4, False)
    assert "disk full" in err
    with pytest.raises(FileNotFoundError) as raised:
        missing.read_bytes()
    assert not disk.is_full(raised.value)


def test_a_ledger_that_has_no_room_says_what_it_needs():
    """LEDGER-10: on a full disk SQLite speaks of its input and output."""
    full = OperationalError("", None, sqlite3.OperationalError("disk I/O error"))
    assert database_message(full).startswith("disk I/O error (it, its -wal and -shm")
    assert "room on the disk" in database_message(full)


def test_a_database_without_room_for_the_file_beside_it_is_a_full_disk():
    """LEDGER-10: SQLite's words are those of any other failure of a disk, as of one that is broken."""
    for name, is_full in (("SQLITE_IOERR_SHMSIZE", True), ("SQLITE_IOERR_READ", False)):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = name
        assert disk.is_full(error) == is_full


@pytest.mark.parametrize("breaking", ["settle", "reject"])
def test_results_whose_write_failed_are_counted_once_after_the_next_attempt(tmp_path, monkeypatch, breaking):
    """REPORT-14"""
    with serving(FakeTarget()) as target, closing(Work(tmp_path, target)) as work, work.ledger.lease(TARGET) as lease:
        book = work.book(lease, [payment(1), payment(2)])
        first, second = rows = list(Intake(book).rows_to_send())
        book.write_down(rows, [])
        results = [(first, RowResult("created", "r1", 201)), (second, RowResult("refused", None, 422))]
        with monkeypatch.context() as broken:
            broken.setattr(work.ledger, breaking, full)
            with pytest.raises(OSError, match="No space"):
                book.write_down([], results)
        assert (book.loaded.counts, book.loaded.reasons) == ({}, {})
        book.write_down([], results)
        assert (book.loaded.counts, book.loaded.reasons) == ({"created": 1, "refused": 1}, {"HTTP-422": 1})
        assert work.states() == {"k1": "created", "k2": "refused"}
