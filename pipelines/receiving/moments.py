"""When a file came: times that follow one another, also where the clock was set back between two files.

A ledger on a server has its clock. Beside one in a file, what came later than another file, or than the ledger's last
fact, has a later time.
"""

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.ledger.access import JOURNAL
from pipelines.ledger.clock import MOST_BEHIND
from pipelines.ledger.journal import Journal

LAST = ".received"
"""An empty file beside the batches, of the time at which the last one came."""
STEP = timedelta(microseconds=1)


def moment_of_receipt(home: Path) -> datetime:
    """Return now, or, if the clock was set back, the moment behind the last one; note it as the last."""
    now, last = datetime.now(UTC), _last(home)
    if last and last - MOST_BEHIND < now <= last:
        now = last + STEP
    if (home / JOURNAL).exists():
        (home / "batches" / LAST).touch(0o600)
        stamp(home / "batches" / LAST, now)
    return now


def stamp(file: Path, moment: datetime) -> None:
    """Give a file a moment as its time."""
    nanoseconds = round(moment.timestamp() * 1_000_000) * 1000
    os.utime(file, ns=(nanoseconds, nanoseconds))


def _last(home: Path) -> datetime | None:
    found = list[datetime]()
    if at := Journal(home / JOURNAL).newest_at():
        found.append(datetime.fromisoformat(at))
        with suppress(OSError):
            found.append(datetime.fromtimestamp((home / "batches" / LAST).stat().st_mtime, UTC))
    return max(found, default=None)
