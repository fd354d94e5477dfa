"""Journals and ledgers of different moments, or gone: brought together, refused, or begun anew by a person."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from tests.support.journals import lose, send
from tests.support.ledgers import states
from tests.support.replaying import journal_of, rows_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_a_ledger_of_yesterday_beside_the_journal_of_today_is_brought_up_to_it(path: Path) -> None:
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
    yesterday = path.with_name("copy")
    shutil.copy(path, yesterday)
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k2", state="refused")
        before = rows_of(ledger)
    lose(path)
    yesterday.rename(path)
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before


def test_a_journal_of_yesterday_beside_the_ledger_of_today_is_refused(path: Path) -> None:
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        journal = journal_of(ledger).path
        yesterday = journal.read_bytes()
        send(ledger, "k2")
    today = journal.read_bytes()
    journal.write_bytes(yesterday)
    with pytest.raises(LedgerError, match=r"journal\.ndjson is older than the ledger beside it: restore the newest"):
        Ledger.open(path)
    journal.write_bytes(today)


def test_a_journal_that_is_gone_is_asked_for_and_begun_anew_where_a_person_says_so(path: Path) -> None:
    """LEDGER-20"""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        before = rows_of(ledger)
    path.with_name("journal.ndjson").unlink()
    with pytest.raises(LedgerError, match=r"journal\.ndjson is missing beside its ledger, .* verify --adopt"):
        Ledger.open(path)
    with closing(Ledger.open(path, anew=True)) as ledger:
        assert rows_of(ledger) == before
    lose(path)
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before


def test_a_journal_of_another_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "ledger.db"
    other.parent.mkdir()
    for each in (path, other):
        with closing(Ledger.open(each)) as ledger:
            send(ledger, "k1")
    own = path.with_name("journal.ndjson").read_bytes()
    shutil.copy(other.with_name("journal.ndjson"), path.with_name("journal.ndjson"))
    with path.with_name("journal.ndjson").open("ab") as file:
        file.write(b'{"n":3,"at":"2026-03-01T12:00:00.000000Z","facts":[]}\n')
    with pytest.raises(LedgerError, match=r"is the journal of another ledger"):
        Ledger.open(path)
    path.with_name("journal.ndjson").write_bytes(own)


@pytest.mark.parametrize("older", [False, True], ids=["missing", "older"])
def test_closed_segments_without_the_newest_are_not_begun_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """LEDGER-20: a ledger is lost, and of its journal the newest file."""
    monkeypatch.setattr("pipelines.ledger.journal.BYTES_A_SEGMENT", 500)
    journal, closed = path.with_name("journal.ndjson"), path.with_name("journal")
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k0")
        yesterday = journal.read_bytes()
        for number in range(1, 5):
            send(ledger, f"k{number}")
    lose(path)
    before = {each.name: each.read_bytes() for each in closed.iterdir()}
    journal.write_bytes(yesterday) if older else journal.unlink()
    with pytest.raises(LedgerError, match=r"journal\.ndjson is (older than|missing beside) its closed segments"):
        Ledger.open(path)
    for key in ("k8", "k9"):
        with closing(Ledger.open(path, anew=True)) as ledger:
            send(ledger, key)
    lose(path)
    with closing(Ledger.open(path)) as ledger:
        assert states(ledger, "k8", "k9") == ["created", "created"]
    assert {name: (closed / name).read_bytes() for name in before} == before


def test_ledger_and_journal_of_yesterday_go_on_beside_closed_segments_of_today(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-20: of the two histories none is mixed with the other."""
    monkeypatch.setattr("pipelines.ledger.journal.BYTES_A_SEGMENT", 500)
    journal = path.with_name("journal.ndjson")
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k0")
    yesterday = path.read_bytes(), journal.read_bytes()
    with closing(Ledger.open(path)) as ledger:
        send(ledger, *(f"k{number}" for number in range(1, 5)))
        send(ledger, "k5")
    lose(path)
    path.write_bytes(yesterday[0])
    journal.write_bytes(yesterday[1])
    with closing(Ledger.open(path)) as ledger:
        for key in ("k6", "k7", "k8"):
            send(ledger, key)
        before = rows_of(ledger)
    lose(path)
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before


def test_a_journal_of_yesterday_is_begun_anew_where_a_person_says_so(path: Path) -> None:
    """CLI-CMD-17: what the ledger knows stays."""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        yesterday = path.with_name("journal.ndjson").read_bytes()
        send(ledger, "k2")
        before = rows_of(ledger)
    path.with_name("journal.ndjson").write_bytes(yesterday)
    Ledger.open(path, anew=True).close()
    lose(path)
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before
