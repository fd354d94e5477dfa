"""Receiving: a file becomes a batch."""

import json
import os
import re
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import pytest

from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.home.batch import UnreadableFile
from pipelines.home.file_growth import is_written
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.lease import utc_text
from pipelines.receiving import stage
from pipelines.receiving.stage import receive

NOW = datetime(2024, 6, 1, tzinfo=UTC)


@pytest.fixture
def feed() -> Feed:
    found = load_feeds().named("payments")
    assert found
    return found


def test_a_file_of_the_inbox_moves_into_its_batch_with_its_control_totals(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-01, STATE-HOME-03, STATE-HOME-07."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    file = inbox / "payments.csv"
    file.write_bytes(b"content")
    (inbox / "payments.csv.control.json").write_text("{}")
    received = receive(file, feed, tmp_path, NOW)
    digest = sha256(b"content").hexdigest()
    assert (received.batch_id, received.sha256, received.size) == (f"payments-{digest[:12]}", digest, 7)
    assert received.path_in_batch == tmp_path / "batches" / received.batch_id / "source" / "payments.csv"
    assert received.path_in_batch.read_bytes() == b"content"
    assert received.path_in_batch.with_name("payments.csv.control.json").exists()
    assert not list(inbox.iterdir())
    assert received.path_in_batch.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="the name of an open file is read from /proc")
def test_a_file_leaves_the_inbox_when_its_copy_would_outlast_a_power_failure(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox may be on another disk, which knows that the file went before the home's knows where the copy is."""
    home, done = tmp_path, list[tuple[str, str]]()
    (home / "inbox").mkdir()
    for name in ("payments.csv", "payments.csv.control.json"):
        (home / "inbox" / name).write_text("{}")
    sync, replace, unlink = os.fsync, Path.replace, Path.unlink

    def syncs(descriptor: int) -> None:
        done.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        sync(descriptor)

    def replaces(path: Path, to: Path) -> Path:
        done.append(("replace", str(to)))
        return replace(path, to)

    def unlinks(path: Path, missing_ok: bool = False) -> None:
        done.append(("unlink", str(path)))
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "replace", replaces)
    monkeypatch.setattr(Path, "unlink", unlinks)
    target = receive(home / "inbox" / "payments.csv", feed, home).path_in_batch
    renamed, gone = done.index(("replace", str(target))), done.index(("unlink", str(home / "inbox" / "payments.csv")))
    between = {path for what, path in done[renamed:gone] if what == "sync"}
    folders = (target.parent, target.parent.parent, home / "batches", home)
    assert {str(folder) for folder in folders} | {f"{target}.control.json"} <= between
    assert any(what == "sync" and path.endswith("/incoming") for what, path in done[:renamed])
    assert ("replace", f"{target}.control.json") in done[:renamed]  # no batch begins without its control totals


def test_a_file_elsewhere_stays_and_the_same_bytes_are_the_same_batch(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-07."""
    first, second = tmp_path / "payments.csv", tmp_path / "payments-again.csv"
    for file in (first, second):
        file.write_bytes(b"content")
    home = tmp_path / "home"
    assert receive(first, feed, home, NOW).batch_id == receive(second, feed, home, NOW).batch_id
    assert first.exists()
    assert second.exists()
    assert [path.name for path in (home / "batches").iterdir()] == [receive(first, feed, home, NOW).batch_id]


def test_the_control_totals_of_a_file_stay_when_it_comes_again_without_them(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-07: a copy under another name does not pass what they have stopped; others replace them."""
    first, copy, renamed = (tmp_path / name for name in ("payments.csv", "payments-copy.csv", "payments.ndjson"))
    for file in (first, copy, renamed):
        file.write_bytes(b"content")
    Path(f"{first}.control.json").write_text('{"rows": 7}')
    source = receive(first, feed, tmp_path / "home", NOW).path_in_batch.parent
    receive(copy, feed, tmp_path / "home", NOW)
    assert read(source) == {"payments.csv": "content", "payments.csv.control.json": '{"rows": 7}'}
    Path(f"{copy}.control.json").write_text('{"rows": 1}')
    receive(copy, feed, tmp_path / "home", NOW)
    assert read(source) == {"payments.csv": "content", "payments.csv.control.json": '{"rows": 1}'}
    receive(renamed, feed, tmp_path / "home", NOW)
    assert read(source) == {"payments.ndjson": "content", "payments.ndjson.control.json": '{"rows": 1}'}


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_copy_of_a_file_is_renamed_only_for_another_format(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-07: another importer may be reading it by its old name."""
    names = ["payments.csv", "payments-copy.csv", "payments.csv.gz", "payments-1.ndjson", "payments-2.jsonl.gz"]
    for name in names:
        (tmp_path / name).write_bytes(b"content")
    received = [receive(tmp_path / name, feed, tmp_path / "home", NOW) for name in names]
    assert [each.file_name for each in received] == names
    assert [each.path_in_batch.name for each in received] == ["payments.csv"] * 3 + ["payments-1.ndjson"] * 2
    [copy] = received[0].path_in_batch.parent.iterdir()
    assert (copy, copy.read_bytes()) == (received[-1].path_in_batch, b"content")


def test_a_changed_copy_is_made_good_by_the_file_under_another_name(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-07."""
    for name in ("payments.csv", "payments-copy.csv"):
        (tmp_path / name).write_bytes(b"content")
    first = receive(tmp_path / "payments.csv", feed, tmp_path / "home", NOW)
    first.path_in_batch.write_bytes(b"changed")
    stage.check_copy(receive(tmp_path / "payments-copy.csv", feed, tmp_path / "home", NOW))


def test_importers_of_equal_bytes_place_them_one_after_another(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-07: two that both found no copy would each remove that of the other."""
    (tmp_path / "payments.csv").write_bytes(b"content")
    moves, others = Path.replace, list[bool]()

    def moved(path: Path, to: Path) -> Path:
        if path.name == "incoming":
            held = os.open(to.parent.parent, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                flock(held, LOCK_EX | LOCK_NB)
            os.close(held)
            others.append(True)
        return moves(path, to)

    monkeypatch.setattr(Path, "replace", moved)
    receive(tmp_path / "payments.csv", feed, tmp_path / "home", NOW)
    assert others


def test_a_file_that_another_importer_takes_meanwhile_stays_in_its_batch_with_its_control_totals(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read it. The one that came second removed the copy of the first, and then missed the totals: lost."""
    inbox = tmp_path / "home/inbox"
    inbox.mkdir(parents=True)
    path, control = inbox / "payments.csv", inbox / "payments.csv.control.json"
    path.write_bytes(b"payment_id\nk1\n")
    control.write_text("{}")
    copy = stage._copy

    def copied_late(source: Path, *given: Any) -> Any:
        if source == control:
            monkeypatch.setattr(stage, "_copy", copy)
            receive(path, feed, tmp_path / "home")
        return copy(source, *given)

    monkeypatch.setattr(stage, "_copy", copied_late)
    with pytest.raises(UnreadableFile):
        receive(path, feed, tmp_path / "home")
    [source] = (tmp_path / "home/batches").glob("*/source")
    there = {each.name: each.read_bytes() for each in source.iterdir()}
    assert there == {"payments.csv": b"payment_id\nk1\n", "payments.csv.control.json": b"{}"}
    assert list(inbox.iterdir()) == []


def test_a_file_servers_clock_does_not_decide_when_a_file_was_received(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-03: the server gives each new file a time of its own."""
    touch = Path.touch

    def touches(path: Path, mode: int) -> None:
        touch(path, mode)
        os.utime(path, (2**33, 2**33))

    monkeypatch.setattr(Path, "touch", touches)
    (tmp_path / "payments.csv").write_text("one\n")
    assert receive(tmp_path / "payments.csv", feed, tmp_path / "home").received_at <= datetime.now(UTC)


def test_a_file_received_after_the_last_fact_is_later_although_the_clock_was_set_back(
    feed: Feed, tmp_path: Path
) -> None:
    """LEDGER-18: otherwise a correction would be older than the undo that it follows."""
    fact = datetime.now(UTC) + timedelta(minutes=1)
    (tmp_path / JOURNAL).write_text(json.dumps({"n": 1, "at": utc_text(fact), "facts": []}) + "\n")
    (tmp_path / "payments.csv").write_text("one\n")
    assert receive(tmp_path / "payments.csv", feed, tmp_path).received_at > fact


def test_a_file_that_is_not_there_is_unreadable_in_one_sentence(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-03."""
    with pytest.raises(UnreadableFile, match=r"^payments\.csv: cannot be taken in: No such file or directory$"):
        receive(tmp_path / "payments.csv", feed, tmp_path, NOW)


def test_a_file_that_grows_while_it_is_read_is_left_for_the_next_time(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-03: half an export is never a batch."""
    file = tmp_path / "inbox" / "payments.csv"
    file.parent.mkdir()
    file.write_text("one\n")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.receiving.stage._settle", lambda _: file.write_text("one\ntwo\n"))
        with pytest.raises(UnreadableFile, match=r"^payments\.csv: the file changed while it was read; try again when"):
            receive(file, feed, tmp_path, NOW)
    assert file.exists()
    assert list((tmp_path / "batches").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a program has a file open to write")
@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
@pytest.mark.parametrize("written", ["payments.csv", "payments.csv.control.json"])
def test_a_file_that_a_program_still_writes_is_left_however_long_it_pauses(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, before: bool
) -> None:
    """STATE-HOME-03: moved, it would take with it what the program writes next, which nobody would ever see.

    It has opened the file before it is read, or meanwhile.
    """
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "payments.csv").write_text("one\n")
    programs = list[IO[str]]()
    with ExitStack() as opened, monkeypatch.context() as patched:

        def begin(_: object = None) -> None:
            programs.append(opened.enter_context((inbox / written).open("a")))

        if before:
            begin()
        else:
            patched.setattr(stage, "_settle", begin)
        with pytest.raises(UnreadableFile, match=rf"^{written}: another program still has it open to write; try again"):
            receive(inbox / "payments.csv", feed, tmp_path, NOW)
        assert (inbox / "payments.csv").exists()
        programs[0].write("two\n")
    received = receive(inbox / "payments.csv", feed, tmp_path, NOW).path_in_batch
    assert received.with_name(written).read_text().endswith("two\n")
    assert not list(inbox.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a program has a file open to write")
@pytest.mark.parametrize(("kind", "written"), [("ext4", True), ("nfs4", False), ("cifs", False)])
def test_a_refused_file_lease_on_a_network_file_system_proves_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, written: bool
) -> None:
    """such systems refuse leases at will, and files would wait for ever."""
    folder = tmp_path / "from a server"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    escaped = str(folder).replace(" ", r"\040")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/ {escaped} {kind} rw 0 0\n")
    monkeypatch.setattr("pipelines.home.file_growth.MOUNTS", mounts)
    with (folder / "payments.csv").open("w"):
        assert is_written(folder / "payments.csv") is written


def test_a_home_that_is_closed_is_named_and_not_the_file(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payments.csv").write_text("one\n")

    def refused(path: Path, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.receiving.stage.is_written", lambda _: False)
        patched.setattr("pipelines.receiving.stage.os.open", refused)
        home = re.escape(str(tmp_path / "home"))
        with pytest.raises(UnreadableFile, match=rf"^payments\.csv: .*: this user has to be able to write in {home}$"):
            receive(tmp_path / "payments.csv", feed, tmp_path / "home", NOW)
    assert (tmp_path / "payments.csv").read_text() == "one\n"


def test_a_file_that_comes_under_the_name_of_one_just_read_stays_for_the_next_time(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-03: it is moved into the inbox once the other was read, and before that was removed."""
    inbox, newer = tmp_path / "inbox", tmp_path / "newer"
    for folder, content in ((inbox, b"old"), (newer, b"new")):
        folder.mkdir()
        (folder / "payments.csv").write_bytes(content)
        (folder / "payments.csv.control.json").write_bytes(content)
    moves = Path.replace

    def moved(path: Path, to: Path) -> Path:
        for each in newer.iterdir() if path.name == "incoming" else ():
            moves(each, inbox / each.name)
        return moves(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", moved)
        first = receive(inbox / "payments.csv", feed, tmp_path, NOW)
    assert [path.read_bytes() for path in sorted(inbox.iterdir())] == [b"new", b"new"]
    assert [path.read_bytes() for path in first.path_in_batch.parent.iterdir()] == [b"old", b"old"]
    second = receive(inbox / "payments.csv", feed, tmp_path, NOW)
    assert not list(inbox.iterdir())
    assert first.batch_id != second.batch_id


def test_an_unreadable_file_and_a_dangling_link_are_named(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-03."""
    (tmp_path / "payments.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(UnreadableFile, match="No such file or directory"):
        receive(tmp_path / "payments.csv", feed, tmp_path, NOW)
    file = tmp_path / "payments-2.csv"
    file.write_text("one\n")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(UnreadableFile, match=r"^payments-2\.csv: cannot be taken in: Permission denied$"):
        receive(file, feed, tmp_path, NOW)


def test_a_file_that_cannot_leave_the_inbox_ends_with_one_sentence_and_makes_no_batch(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-HOME-03."""
    file = tmp_path / "inbox" / "payments.csv"
    file.parent.mkdir()
    file.write_text("one\n")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UnreadableFile, match=r"inbox: let this user write there, or name a copy elsewhere"):
        receive(file, feed, tmp_path, NOW)
    assert not (tmp_path / "batches").exists()
    assert file.exists()


@pytest.mark.parametrize("left", [b"", b"0", b"0123456789ab", b"\xff" * 64, bytes(65)])
def test_a_hash_that_was_cut_off_is_written_anew(feed: Feed, tmp_path: Path, left: bytes) -> None:
    """STATE-HOME-07: the machine ended while it was written, or its disk."""
    file = tmp_path / "payments.csv"
    file.write_bytes(b"content")
    batch = tmp_path / "batches" / f"payments-{sha256(b'content').hexdigest()[:12]}"
    batch.mkdir(parents=True)
    (batch / "sha256").write_bytes(left)
    received = receive(file, feed, tmp_path, NOW)
    assert (batch / "sha256").read_text().strip() == received.sha256
    assert sorted(found.name for found in batch.iterdir()) == ["sha256", "source"]


def test_a_file_whose_hash_begins_as_that_of_another_is_refused(feed: Feed, tmp_path: Path) -> None:
    """STATE-HOME-07."""
    file = tmp_path / "payments.csv"
    file.write_bytes(b"content")
    digest = sha256(b"content").hexdigest()
    batch = tmp_path / "batches" / f"payments-{digest[:12]}"
    batch.mkdir(parents=True)
    (batch / "sha256").write_text(f"{digest[:12]}{'0' * 52}\n")
    with pytest.raises(UnreadableFile, match="belongs to another file"):
        receive(file, feed, tmp_path, NOW)
    assert file.exists()
