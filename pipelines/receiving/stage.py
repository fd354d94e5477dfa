"""The first stage: a file becomes a batch, copied and hashed under `<home>/batches/<feed>-<hash>/source/`."""

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import IO
from uuid import uuid4

from fhir_service.paths import exists, is_file
from pipelines.feeds.files.catalog import Feed, form_by_name, plain_name
from pipelines.home import disk, traces
from pipelines.home.batch import (
    BESIDE_FILE,
    SOURCE,
    ReceivedFile,
    UnreadableFile,
    batch_name,
    control_of,
    is_control,
    printable_name,
    reading_file,
    reason_of,
    received_before,
    source_in,
)
from pipelines.home.file_growth import WRITING, is_written
from pipelines.home.files import locked_folder, replace_whole, sha256_of, to_disk
from pipelines.home.inbox import Inbox
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.home_batches import HomeBatches
from pipelines.receiving.receipt_times import moment_of_receipt, stamp

BLOCK = 1 << 20
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
HASH = re.compile("[0-9a-f]{64}")
FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def receive(
    path: Path,
    feed: Feed,
    home: Path,
    now: datetime | None = None,
    inbox: Inbox | None = None,
    batches: HomeBatches | None = None,
) -> ReceivedFile:
    """Receive a file with its control totals: a file of the inbox is moved into its batch, any other file is copied.

    Files with equal bytes are one batch. The file behind a link in the inbox stays where it is. Raises `UnreadableFile`
    if the file cannot be read to its end, changed meanwhile, is a refused link, or is still open for writing.

    inbox: the inbox, with the links that it follows; by default the home's, without links that lead out of it. batches:
    where the file is kept before it leaves the inbox; by default the home's own folder.
    """
    name, began = printable_name(path.name), time.time_ns()
    inbox, moving = inbox or Inbox(home / "inbox"), Inbox(home / "inbox").holds(path)
    if moving and not os.access(path.parent, os.W_OK):
        raise UnreadableFile(
            f"{name}: cannot be moved out of the inbox: let this user write there, or name a copy elsewhere"
        )
    batches = batches or HomeBatches(home / "batches")
    try:
        batches.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = now or moment_of_receipt(home, name, batches.clock)
        with throwaway_folder(home) as scratch:
            incoming = scratch / "incoming"
            sha256, read = _copy(path, incoming, inbox)
            stamp(incoming, now)
            batch_id = batch_name(feed.name, sha256)
            folder = batches.renew(batch_id, *BESIDE_FILE)
            control = _copy_control(path, scratch / "control", inbox)
            (folder / "source").mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_folder(folder):  # two importers of equal bytes: the second finds the copy of the first
                target = _place(folder, sha256, name, batches, now)
                if control:
                    (scratch / "control").replace(control_of(target))
                incoming.replace(target)
                _remove_others(target)
                if moving:
                    _outlast_power_failure(target, home, control is not None)
        batches.keep(batch_id, *SOURCE)
    except OSError as error:
        raise UnreadableFile(f"{name}: cannot be taken in: {_why(error, home)}") from None
    if moving:
        _remove_unless_replaced(path, read)
        _remove_unless_replaced(control_of(path), control)
    traces.past("receive", batch_id, began)
    return ReceivedFile(batch_id, sha256, target, name, read.st_size, now)


def _outlast_power_failure(target: Path, home: Path, with_control: bool) -> None:
    """Wait until the batch's copy is on the disk under its name.

    The inbox may be on another disk. After a power failure, that disk could have forgotten the file before this one
    knows its copy.
    """
    if with_control:
        to_disk(control_of(target))
    for folder in (target.parent, target.parent.parent, home / "batches", home):
        to_disk(folder)


def _why(error: OSError, home: Path) -> str:
    """Return why a file could not be received. If the home cannot be written, the reason says so."""
    if disk.is_full(error):
        return disk.FULL
    said = reason_of(error)
    places = [Path(os.fsdecode(at)) for at in (error.filename, error.filename2) if at]
    own = [at for at in places if at.is_relative_to(home) and not at.is_relative_to(home / "inbox")]
    if error.errno in CLOSED and own:
        batches = home / "batches"
        closed = batches if any(at.is_relative_to(batches) for at in own) else home
        return f"{said}: this user has to be able to write in {closed}"
    return said


@contextmanager
def linked_copy(received: ReceivedFile, home: Path) -> Iterator[ReceivedFile]:
    """Yield a file whose copy and control totals are hard links for this reader only; the copy itself if links fail.

    Meanwhile equal bytes may arrive under a name of another format, and replace the copy in the batch.
    """
    with throwaway_folder(home) as own:
        yield _linked(received, own)


def _linked(received: ReceivedFile, own: Path) -> ReceivedFile:
    batch, link = received.path_in_batch.parent.parent, own / received.path_in_batch.name
    with suppress(OSError, StopIteration), locked_folder(batch):
        copy = source_in(batch)
        link.hardlink_to(copy)
        if exists(control_of(copy)):
            control_of(link).hardlink_to(control_of(copy))
        return replace(received, path_in_batch=link)
    return received


def check_copy(received: ReceivedFile) -> None:
    """Raise Unreadable if the copy in the batch is not the file that came, for which its rows would be taken."""
    with reading_file(received.file_name):
        same = sha256_of(received.path_in_batch) == received.sha256
    if not same:
        raise UnreadableFile(
            f"{received.file_name}: the copy in its batch was changed since it was received: put the file itself into"
            " the inbox once more"
        )


def _copy(path: Path, to: Path, inbox: Inbox) -> tuple[str, os.stat_result]:
    """Copy and hash a file; return its status as it was when it was read."""
    digest, size = hashlib.sha256(), 0
    with inbox.open(path) as source:
        before = os.fstat(source.fileno())
        if not S_ISREG(before.st_mode):
            raise UnreadableFile(f"{printable_name(path.name)}: not a regular file")
        _check_nobody_writes(path)
        with os.fdopen(os.open(to, FRESH, 0o600), "wb") as target:
            while block := source.read(BLOCK):
                digest.update(block)
                target.write(block)
                size += len(block)
            _settle(target)
        _check_nobody_writes(path)
        after = path.stat()
    if not _same(before, after) or size != after.st_size:
        raise UnreadableFile(
            f"{printable_name(path.name)}: the file changed while it was read; try again when it is complete"
        )
    return digest.hexdigest(), after


def _check_nobody_writes(path: Path) -> None:
    if is_written(path):
        raise UnreadableFile(f"{printable_name(path.name)}: {WRITING}")


def _remove_unless_replaced(path: Path, read: os.stat_result | None) -> None:
    """Remove a file that was read from the inbox. A newer file under its name stays, and is imported later."""
    with suppress(FileNotFoundError):
        if read and _same(path.stat(), read):
            path.unlink()


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_mtime_ns, one.st_size) == (other.st_ino, other.st_mtime_ns, other.st_size)


def _settle(target: IO[bytes]) -> None:
    target.flush()
    os.fsync(target.fileno())


def _place(folder: Path, sha256: str, name: str, batches: HomeBatches, now: datetime) -> Path:
    """Return the file's place in its batch. Of two files whose hashes begin alike, the second is refused.

    A copy in the batch keeps its name, since another importer may be reading it. If the new name shows another format,
    the file takes the copy's place: it was renamed to be read in that format.
    """
    source = folder / "source"
    if _hash_of(folder, sha256, now) != sha256:
        raise OSError(0, f"the batch {folder.name} belongs to another file")
    there = received_before(folder) or batches.received(folder.name)
    stays = there is not None and _format(there.path_in_batch.name) == _format(name)
    target = source / (there.path_in_batch.name if there and stays else name)
    for older in list(source.iterdir()):
        if is_control(older.name) and older != control_of(target):
            older.replace(control_of(target))  # it stays until other control totals come
    return target


def _format(name: str) -> str:
    return form_by_name(plain_name(name))


def _remove_others(target: Path) -> None:
    """Remove equal bytes under other names, after a file took their place: a batch is never without a file."""
    for older in list(target.parent.iterdir()):
        if older != target and not is_control(older.name):
            older.unlink(missing_ok=True)


def _hash_of(folder: Path, otherwise: str, now: datetime) -> str:
    """Return the hash that a batch belongs to. Write it down if it is missing or was damaged by a crash.

    The time of its file is the time of receipt.
    """
    known = folder / "sha256"
    if exists(known) and HASH.fullmatch(said := known.read_text(errors="replace").strip()):
        return said
    part = folder / f".sha256-{uuid4().hex}"
    try:
        part.write_text(otherwise + "\n")
        stamp(part, now)
        replace_whole(part, known)
    finally:
        part.unlink(missing_ok=True)
    return otherwise


def _copy_control(path: Path, to: Path, inbox: Inbox) -> os.stat_result | None:
    """Copy the control totals beside the file, if there are any; return their status.

    They are placed before the file, so that no batch starts without its totals. They are copied before anything is
    placed, since another importer may take them at any moment.
    """
    control = control_of(path)
    return _copy(control, to, inbox)[1] if is_file(control) else None
