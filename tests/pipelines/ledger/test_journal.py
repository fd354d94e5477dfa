"""The journal: with a lost or older ledger, torn, damaged, of another ledger, on a full disk, in segments."""

import errno
import gzip
import json
import os
import re
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import event

from pipelines.ledger import verbs
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import close_answered, write_states
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.ledger.rows import Outcome, Reject
from pipelines.ledger.tables import SCHEMA_VERSION, LedgerError
from tests.pipelines.conftest import Clock
from tests.support.earlier import make_earlier
from tests.support.exports import tasks
from tests.support.journals import a_history, leave_closed, lose, send
from tests.support.ledgers import OF, TARGET, intent, start, states
from tests.support.replaying import journal_of, rows_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_a_lost_ledger_is_made_again_from_its_journal(path: Path, clock: Clock) -> None:
    """LEDGER-20"""
    with closing(Ledger.open(path, clock)) as ledger:
        a_history(ledger)
        before = rows_of(ledger)
    lose(path)
    clock.pass_seconds(3600)
    with closing(Ledger.open(path, clock)) as ledger:
        assert rows_of(ledger) == before
        assert states(ledger, "k1", "k2") == ["created", "created"]


def test_every_prefix_of_a_journal_gives_the_ledger_of_that_moment(path: Path, clock: Clock) -> None:
    """LEDGER-20"""
    moments = []
    with closing(Ledger.open(path, clock)) as ledger:
        tell = ledger.tell

        def watched(name, arguments, act):
            done = tell(name, arguments, act)
            clock.pass_seconds(1)
            return done

        ledger.tell = watched  # type: ignore[method-assign]
        a_history(ledger)
        text = journal_of(ledger).path.read_bytes()
    lines = text.splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        lose(path)
        path.with_name("journal.ndjson").write_bytes(b"".join(lines[:number]))
        with closing(Ledger.open(path, clock)) as ledger:
            moments.append(rows_of(ledger))
    assert [json.loads(line)["n"] for line in lines[1:]] == list(range(1, len(lines)))
    assert moments[-1]["reject"]
    assert not moments[0]["record"]


def test_a_reader_does_not_wait_for_a_writer_stopped_between_journal_and_commit(path: Path) -> None:
    """CLI-CMD-03: it reads the ledger in the state before that."""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        before = rows_of(ledger)
        with ledger.transaction():
            journal = journal_of(ledger).path
            whole = journal.read_bytes()
            with journal.open("ab") as file:
                file.write(b'{"n":9,"at":"2026-03-01T12:00:00.000000Z","facts":[]}\n')
            with closing(Ledger.open(path)) as reading:
                assert rows_of(reading) == before
            journal.write_bytes(whole)


@pytest.mark.parametrize("left", [1, 20, -1])
def test_a_torn_last_line_was_never_sent_and_is_cut(path: Path, left: int) -> None:
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        before = rows_of(ledger)
        journal = journal_of(ledger).path
    whole = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(b'{"n":4,"at":"2026-03-01T12:00:00.000000Z","facts":[["forget"]]}\n'[:left])
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before
        assert journal.read_bytes() == whole
        send(ledger, "k2")


def test_a_damaged_line_that_others_follow_is_named_and_nothing_is_guessed(path: Path) -> None:
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
    lose(path)
    journal = path.with_name("journal.ndjson")
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{" + lines[1][2:], *lines[2:]]))
    with pytest.raises(LedgerError, match=r"journal\.ndjson: the line behind number 0 is damaged: restore the file"):
        Ledger.open(path)
    journal.write_bytes(whole)


def test_verify_reads_the_whole_journal_and_names_a_damaged_line(home, target, asked, chartferry) -> None:
    """CLI-CMD-17: the ledger does not need the line, but would be made of it if it were lost."""
    tasks(home, "k1", "k2")
    asked("import")
    assert chartferry("verify")[0] == 0
    journal = home / "journal.ndjson"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], b"[" + lines[3][1:], *lines[4:]]))
    code, _, said = chartferry("verify")
    assert (code, "journal.ndjson: the line behind number 2 is damaged" in said) == (6, True)
    journal.write_bytes(whole)


def test_a_journal_from_a_newer_version_is_refused(path: Path) -> None:
    Ledger.open(path).close()
    lose(path)
    journal = path.with_name("journal.ndjson")
    whole = journal.read_text()
    journal.write_text(whole.replace('"version":1', '"version":2'))
    with pytest.raises(LedgerError, match=r"journal\.ndjson is from a newer version \(2\.\d+, this one knows 1\.\d+\)"):
        Ledger.open(path)
    journal.write_text(whole)


def test_a_full_disk_leaves_neither_half_a_line_nor_half_a_fact(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        before = rows_of(ledger)
        text = journal_of(ledger).path.read_bytes()

        def full(descriptor: int, some: bytes, at: int) -> int:
            os.lseek(descriptor, at, os.SEEK_SET)
            os.write(descriptor, some[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            with pytest.raises(OSError, match="No space"):
                ledger.note_target(TARGET, "http://127.0.0.1:1")
        assert journal_of(ledger).path.read_bytes() == text
        assert rows_of(ledger) == before
        ledger.note_target(TARGET, "http://127.0.0.1:1")


def test_a_fact_that_is_in_the_journal_and_not_committed_is_replayed_before_the_next_write(path: Path) -> None:
    """LEDGER-01: the process ended between the journal and the commit."""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        in_step = ledger._in_step
        assert in_step
        keep = in_step.keep

        def keep_and_die(*arguments):
            keep(*arguments)
            raise KeyboardInterrupt

        in_step.keep = keep_and_die  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            ledger.note_target(TARGET, "http://127.0.0.1:1")
    with closing(Ledger.open(path)) as ledger:
        assert ledger.tables()["target"].num_rows == 1


def test_segments_are_closed_compressed_and_read_through(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.ledger.journal.BYTES_A_SEGMENT", 500)
    with closing(Ledger.open(path)) as ledger:
        for number in range(5):
            send(ledger, f"k{number}")
        before = rows_of(ledger)
    closed = sorted(path.with_name("journal").iterdir())
    assert [each.name for each in closed][:2] == ["000001.ndjson.gz", "000002.ndjson.gz"]
    assert all(json.loads(gzip.decompress(each.read_bytes()).splitlines()[0])["journal"] for each in closed)
    lose(path)
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before
    lose(path)
    closed[1].rename(path.with_name("aside"))
    with pytest.raises(LedgerError, match=r"000002\.ndjson\.gz is missing: restore it from a backup"):
        Ledger.open(path)
    path.with_name("aside").rename(closed[1])


def test_a_ledger_that_had_no_journal_begins_it_with_all_that_it_knows(path: Path, clock: Clock) -> None:
    with closing(Ledger.open(path, clock)) as ledger:
        a_history(ledger)
        before = rows_of(ledger)
        make_earlier(ledger, 7)
    with closing(Ledger.open(path, clock)) as ledger:
        after = rows_of(ledger)
        send(ledger, "k3")
        at_last = rows_of(ledger)
    assert after == before
    lose(path)
    with closing(Ledger.open(path, clock)) as ledger:
        assert rows_of(ledger) == at_last


def test_the_journal_is_its_owners_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(Ledger.open(path)) as ledger:
            assert journal_of(ledger).path.stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)


def test_a_step_of_the_schema_begins_a_segment_with_all_that_the_tables_have(path: Path) -> None:
    """LEDGER-20: earlier facts do not contain the changes of a migration."""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        before = rows_of(ledger)
        journal = journal_of(ledger).path
    text = journal.read_text()
    journal.write_text(text.replace(f'"schema":{SCHEMA_VERSION}', f'"schema":{SCHEMA_VERSION - 1:>2}'))
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before
        head = json.loads(journal.read_text().splitlines()[0])
        assert (head["segment"], head["schema"], head["snapshot"]) == (2, SCHEMA_VERSION, True)
        send(ledger, "k2")
        before = rows_of(ledger)
    lose(path)
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before


def test_a_step_of_the_schema_opens_the_rejects_that_an_undo_had_left_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-17, LEDGER-20: the migrated tables equal those that the journal gives."""
    with closing(Ledger.open(path)) as ledger:
        journal = journal_of(ledger).path
        leave_closed(ledger, monkeypatch)
    text = of_yesterday(journal)
    with closing(Ledger.open(path)) as ledger:
        [row] = ledger.tables()["reject"].to_pylist()
        assert (row["state"], row["closed_by_batch"]) == ("open", None)
        upgraded = rows_of(ledger)
    for is_older in (False, True):
        if is_older:
            shutil.rmtree(path.with_name("journal"))
            journal.write_text(text)
        lose(path)
        with closing(Ledger.open(path)) as ledger:
            assert rows_of(ledger) == upgraded


def test_a_step_of_the_schema_leaves_rejects_on_their_way_that_say_not_since_when(path: Path) -> None:
    """LEDGER-07, LEDGER-20"""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1")
        ledger.reject(TARGET, *OF, "payments-a", [Reject(2, 1, "k1", "rule", None, None, None, [])])
        [row] = ledger.tables()["reject"].to_pylist()
        write_states(ledger, [("resubmitted", None, TARGET, row["reject_id"])])
        of_yesterday(journal_of(ledger).path)
    for _ in range(2):
        with closing(Ledger.open(path)) as ledger:
            settle_resubmitted(ledger, TARGET)
            [row] = ledger.tables()["reject"].to_pylist()
            assert (row["state"], row["tried_since"]) == ("resubmitted", row["last_seen_at"])
        lose(path)


def of_yesterday(journal: Path) -> str:
    """Turn a journal into one of an earlier schema. Return its text."""
    text = journal.read_text().replace(f'"schema":{SCHEMA_VERSION}', f'"schema":{SCHEMA_VERSION - 1:>2}')
    journal.write_text(text)
    return text


def test_a_journal_whose_snapshot_is_of_an_earlier_version_is_named_where_the_ledger_is_lost(path: Path) -> None:
    """LEDGER-20: only the version that wrote it can make the ledger again. This version guesses nothing."""
    with closing(Ledger.open(path)) as ledger, ledger.transaction():
        ledger.tell("take_in", ["entry", ["target", "key"], [[1, "k1"]]], lambda: None)
    lose(path)
    with pytest.raises(LedgerError, match=r"a table of an earlier version \(entry\): open the home once"):
        Ledger.open(path)


def test_a_transaction_is_on_the_disk_by_one_flush(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LEDGER-01: the flush of the journal, from which the tables can be made."""
    flushed: list[None] = []
    with closing(Ledger.open(path)) as ledger, ledger.lease(TARGET) as lease:
        start(ledger, "payments-a")
        flush = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda descriptor: flushed.append(flush(descriptor)))
        for number in range(5):
            ledger.intend(lease, *OF, [intent(f"k{number}", number + 2)])
            ledger.settle(TARGET, *OF, [Outcome(f"k{number}", 1, "created", f"id-{number}", 201)])
    assert len(flushed) == 10


@pytest.mark.parametrize("within", ["Journal._replace", "Journal.next_segment", "Journal._close_segment"])
@pytest.mark.parametrize("anew", [False, True], ids=["of before the journal", "journal lost"])
def test_a_journal_that_is_begun_is_there_with_all_rows_or_not_at_all(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, anew: bool, within: str
) -> None:
    """LEDGER-20: also after a kill or on a full disk. The tables are not cleared before it is complete."""
    with closing(Ledger.open(path, clock)) as ledger:
        a_history(ledger)
        before = rows_of(ledger)
        if not anew:
            make_earlier(ledger, 7)
    path.with_name("journal.ndjson").unlink(missing_ok=True)
    for place in (f"journal.{within}", "journal_sync._put_position"):
        with monkeypatch.context() as patched, suppress(OSError):
            patched.setattr(f"pipelines.ledger.{place}", no_room)
            Ledger.open(path, clock, anew=anew).close()
    with closing(Ledger.open(path, clock, anew=anew)) as ledger:
        assert rows_of(ledger) == before
    lose(path)
    with closing(Ledger.open(path, clock)) as ledger:
        assert rows_of(ledger) == before


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_numbers_of_a_transaction_that_is_not_committed_are_kept_when_it_is_replayed(path: Path) -> None:
    """LEDGER-20: without these numbers its records would be invisible."""
    with closing(Ledger.open(path)) as ledger, ledger.lease(TARGET) as lease:
        start(ledger, "payments-a")
        event.listen(ledger._writing, "commit", no_room)
        with pytest.raises(OSError, match="No space"):
            ledger.intend(lease, *OF, [intent("k1", 2)])
        event.remove(ledger._writing, "commit", no_room)
        ledger.note_target(TARGET, "http://127.0.0.1:1")
        assert states(ledger, "k1") == ["sending"]


@pytest.mark.parametrize("how", ["gap", "rot", "twice"])
def test_a_last_line_that_is_whole_and_wrong_is_not_cut(path: Path, how: str) -> None:
    """LEDGER-20: it was flushed, so that a row may have been sent after it."""
    with closing(Ledger.open(path)) as ledger:
        send(ledger, "k1", "k2")
    lose(path)
    journal = path.with_name("journal.ndjson")
    whole = journal.read_bytes()
    *lines, before, last = whole.splitlines(keepends=True)
    said = {"gap": [last], "rot": [before, last.replace(b"facts", b"fbcts")], "twice": [before, last, last]}[how]
    journal.write_bytes(b"".join([*lines, *said]))
    with pytest.raises(LedgerError, match=r"the line behind number \d is damaged"):
        Ledger.open(path)
    journal.write_bytes(whole)


@pytest.mark.parametrize("arguments", [-1, 1])
def test_a_fact_of_an_earlier_version_lacks_what_came_since_and_none_has_more(path: Path, arguments: int) -> None:
    """LEDGER-20: a verb may get new parameters whose defaults mean its former behaviour."""
    with closing(Ledger.open(path)) as ledger:
        a_history(ledger)
        ledger.finish_batch(TARGET, "payments-a", "finished", {"created": 2})
        before = rows_of(ledger)
    journal = path.with_name("journal.ndjson")
    *lines, last = journal.read_text().splitlines()
    said = json.loads(last)
    [fact] = said["facts"]
    assert fact[0] == "finish_batch"
    said["facts"] = [fact[:-1] if arguments < 0 else [*fact, []]]
    journal.write_text("\n".join([*lines, json.dumps(said), ""]))
    lose(path)
    if arguments > 0:
        with pytest.raises(LedgerError, match="from a newer version: it says more of 'finish_batch'"):
            Ledger.open(path)
        return
    with closing(Ledger.open(path)) as ledger:
        assert rows_of(ledger) == before


def test_a_closing_of_an_earlier_version_closes_what_is_answered(path: Path, clock: Clock) -> None:
    """LEDGER-20: that fact names the keys that had landed. Today's rule reads the tables."""
    with closing(Ledger.open(path, clock)) as ledger:
        a_history(ledger)
        ledger.reject(TARGET, *OF, "payments-a", [Reject(3, 1, "k3", "rule", None, None, None, [])])
        clock.pass_seconds(1)
        with ledger.lease(TARGET) as lease:
            ledger.intend(lease, *OF, [intent("k3")._replace(batch_id="payments-b")])
            ledger.settle(TARGET, *OF, [Outcome("k3", 1, "created", "id-3", 201)])
        close_answered(ledger, (TARGET, *OF), "payments-b")
        before = rows_of(ledger)
    journal = path.with_name("journal.ndjson")
    *lines, last = journal.read_text().splitlines()
    said = json.loads(last)
    assert [fact[0] for fact in said["facts"]] == ["write_states"]
    said["facts"] = [["close_rejects", TARGET, *OF, ["k3"], "payments-b", [], {}, []]]
    journal.write_text("\n".join([*lines, json.dumps(said), ""]))
    lose(path)
    with closing(Ledger.open(path, clock)) as ledger:
        assert rows_of(ledger) == before


def test_a_fact_of_any_verb_can_be_replayed_by_a_command_that_needs_few_of_them() -> None:
    """LEDGER-20: modules of verbs are imported when a fact needs them."""
    ledger = Path(verbs.__file__).parent
    have = {path.stem for path in ledger.glob("*.py") if re.search(r"^ *@verb$", path.read_text(), re.MULTILINE)}
    assert have == set(verbs.MODULES)
