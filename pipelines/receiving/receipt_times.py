"""Times of receipt that always increase, even if the clock was set back between two files.

Within a home, a file has a later time than all earlier files, and than the last fact in the home's journal. Homes that
keep their batches in an object store share the clock of the ledger.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fhir_service.paths import exists
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.home.files import locked
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.clock import EARLIEST, LAST_FACT, far_behind
from pipelines.ledger.journal import Journal
from pipelines.ledger.lease import Clock

LAST = ".received"
"""An empty file beside the batches, whose time is that of the last receipt."""
STEP = timedelta(microseconds=1)


def moment_of_receipt(home: Path, name: str, clock: Clock | None = None) -> datetime:
    """Return the present time, or the moment after the last receipt if the clock was set back; note it as the last.

    name: the file's name, for the message. clock: replaces this machine's clock. Raises `UnreadableFile` if the clock
    is too far behind.
    """
    mark, at = home / "batches" / LAST, Journal(home / JOURNAL).newest_at()
    of_facts = datetime.fromisoformat(at) if at else EARLIEST
    with locked(mark) if _may_write(mark) else nullcontext():
        last, now = max(of_facts, _time_of(mark)), clock() if clock else datetime.now(UTC)
        if said := far_behind(now, last, LAST_FACT if last == of_facts else "a file came at"):
            raise UnreadableFile(f"{name}: not taken in, since {said}")
        now = max(now, last + STEP)
        with suppress(OSError):
            stamp(mark, now)
    return now


def begin_anew(home: Path, files: Iterable[ReceivedFile], known: Collection[str]) -> None:
    """Forget the time of the last receipt, after a person says that it was wrong. Raises `OSError`.

    files: those of the home's batches, oldest first; a file dated in the future gets the present time. known: batches
    in the ledger. Their copies keep their times: a copy that came again is later than a run that did not load it.
    """
    (home / "batches" / LAST).unlink(missing_ok=True)
    for each in files:
        if each.received_at > datetime.now(UTC):
            moment = moment_of_receipt(home, each.file_name)
            stamp(each.path_in_batch.parent.parent / "sha256", moment)
            if each.batch_id not in known:
                stamp(each.path_in_batch, moment)


def stamp(file: Path, moment: datetime) -> None:
    """Set the time of a file."""
    nanoseconds = round(moment.timestamp() * 1_000_000) * 1000
    os.utime(file, ns=(nanoseconds, nanoseconds))


def _may_write(mark: Path) -> bool:
    """True if this user may write the mark, which another user may have made; make the mark if it is missing.

    A new mark gets time 0, not the time of a file server.
    """
    with suppress(OSError):
        if not exists(mark):
            mark.touch(0o600)
            os.utime(mark, (0, 0))
    return os.access(mark, os.W_OK)


def _time_of(mark: Path) -> datetime:
    return datetime.fromtimestamp(mark.stat().st_mtime, UTC) if exists(mark) else EARLIEST
