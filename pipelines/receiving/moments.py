"""When a file came: times that follow one another, also where the clock was set back between two files.

A ledger on a server has its clock. Beside one in a file, what came later than another file, or than the ledger's last
fact, has a later time.
"""

import os
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.home.batch import Unreadable
from pipelines.home.files import locked
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.clock import MOST_BEHIND
from pipelines.ledger.journal import Journal
from pipelines.ledger.lease import utc_text

LAST = ".received"
"""An empty file beside the batches, of the time at which the last one came."""
STEP = timedelta(microseconds=1)


def moment_of_receipt(home: Path, name: str) -> datetime:
    """Return now, or, if the clock was set back, the moment behind the last one; note it as the last.

    name: of the file, for the message. Raises `Unreadable` where the clock is too far behind.
    """
    at = Journal(home / JOURNAL).newest_at()
    if not at:
        return datetime.now(UTC)
    mark = home / "batches" / LAST
    with locked(mark) if _may_write(mark) else nullcontext():
        last, now = max(datetime.fromisoformat(at), _time_of(mark)), datetime.now(UTC)
        if now < last - MOST_BEHIND:
            raise Unreadable(
                f"{name}: not taken in, since the clock shows {utc_text(now)}, and the ledger has facts of"
                f" {utc_text(last)}: set the clock right, or, where the ledger's time is the wrong one:"
                " chartferry import --clock-is-right"
            )
        now = max(now, last + STEP)
        with suppress(OSError):
            stamp(mark, now)
    return now


def forget_last(home: Path) -> None:
    """Forget when the last file came, where a person says that the time was a wrong one."""
    (home / "batches" / LAST).unlink(missing_ok=True)


def stamp(file: Path, moment: datetime) -> None:
    """Give a file a moment as its time."""
    nanoseconds = round(moment.timestamp() * 1_000_000) * 1000
    os.utime(file, ns=(nanoseconds, nanoseconds))


def _may_write(mark: Path) -> bool:
    """True if the mark is there for this user, who may be another one than the last."""
    with suppress(OSError):
        if not mark.exists():
            mark.touch(0o600)
    return os.access(mark, os.W_OK)


def _time_of(mark: Path) -> datetime:
    return datetime.fromtimestamp(mark.stat().st_mtime, UTC) if mark.exists() else datetime.min.replace(tzinfo=UTC)
