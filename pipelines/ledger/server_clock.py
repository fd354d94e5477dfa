"""The clock by which the times in a ledger are written: that of its server, if it has one.

Machines that share a ledger compare such times: what was at a target before a row was sent, which of two rows came
later, how long ago the outcome of one was missed. Their own clocks may be minutes apart.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

ASKED = "SELECT extract(epoch FROM clock_timestamp())::float8"
MOST_OFF = timedelta(seconds=1)
"""What an answer may be late by. By less, the time of a process does not jump; this machine may have slept, though."""


class ServerClock:
    """Returns the time, when called. It is asked for as a session begins, and goes on by a clock that nobody sets.

    Without a server it is the time of this machine.
    """

    def __init__(self) -> None:
        self._said: tuple[datetime, float] | None = None

    def begin_session(self, raw: Any) -> None:
        """Ask a server for its time, which is that of half the way there and back."""
        at = time.monotonic()
        [seconds] = raw.execute(ASKED).fetchone()
        said, at = datetime.fromtimestamp(seconds, UTC), at + (time.monotonic() - at) / 2
        if self._said is None or abs(said - self()) > MOST_OFF:
            self._said = said, at

    def __call__(self) -> datetime:
        if self._said is None:
            return datetime.now(UTC)
        begun, at = self._said
        return begun + timedelta(seconds=time.monotonic() - at)

    def of_here(self, moment: datetime) -> datetime:
        """Return what this clock showed at a moment that this machine's clock gives."""
        return moment if self._said is None else moment + (self() - datetime.now(UTC))
