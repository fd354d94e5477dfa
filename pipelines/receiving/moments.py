"""When a file came: times that follow one another, also where the clock was set back between two files.

In a home, what came later than another file, or than the last fact of a ledger in a file, has a later time. Homes that
keep their batches at a store have the clock of the ledger in common.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.home.batch import Received, Unreadable
from pipelines.home.files import locked
from pipelines.home.paths import exists
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.clock import EARLIEST, LAST_FACT, far_behind
from pipelines.ledger.journal import Journal
from pipelines.ledger.lease import Clock

LAST = ".received"
"""An empty file beside the batches, of the time at which the last one came."""
STEP = timedelta(microseconds=1)


def moment_of_receipt(home: Path, name: str, clock: Clock | None = None) -> datetime:
    """Return now, or, if the clock was set back, the moment behind the last one; note it as the last.

    name: of the file, for the message. clock: in place of this machine's. Raises `Unreadable` where the clock is too
    far behind.
    """
    mark, at = home / "batches" / LAST, Journal(home / JOURNAL).newest_at()
    of_facts = datetime.fromisoformat(at) if at else EARLIEST
    with locked(mark) if _may_write(mark) else nullcontext():
        last, now = max(of_facts, _time_of(mark)), clock() if clock else datetime.now(UTC)
        if said := far_behind(now, last, LAST_FACT if last == of_facts else "a file came at"):
            raise Unreadable(f"{name}: not taken in, since {said}")
        now = max(now, last + STEP)
        with suppress(OSError):
            stamp(mark, now)
    return now


def begin_anew(home: Path, files: Iterable[Received], known: Collection[str]) -> None:
    """Forget when the last file came, where a person says that the time was a wrong one. Raises `OSError`.

    files: of the home's batches, oldest first. Those that are dated ahead came before now. known: batches that the
    ledger has, whose copies keep their times: one is later than a run that did not load it, where it came again.
    """
    (home / "batches" / LAST).unlink(missing_ok=True)
    for each in files:
        if each.received_at > datetime.now(UTC):
            moment = moment_of_receipt(home, each.file_name)
            stamp(each.path_in_batch.parent.parent / "sha256", moment)
            if each.batch_id not in known:
                stamp(each.path_in_batch, moment)


def stamp(file: Path, moment: datetime) -> None:
    """Give a file a moment as its time."""
    nanoseconds = round(moment.timestamp() * 1_000_000) * 1000
    os.utime(file, ns=(nanoseconds, nanoseconds))


def _may_write(mark: Path) -> bool:
    """True if the mark is there for this user, who may be another one than the last. A new one is of no time, and not
    of that of a file server.
    """
    with suppress(OSError):
        if not exists(mark):
            mark.touch(0o600)
            os.utime(mark, (0, 0))
    return os.access(mark, os.W_OK)


def _time_of(mark: Path) -> datetime:
    return datetime.fromtimestamp(mark.stat().st_mtime, UTC) if exists(mark) else EARLIEST
