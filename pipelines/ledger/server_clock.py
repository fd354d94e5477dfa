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
        self._begun: datetime | None = None
        self._at = 0.0

    def begin_session(self, raw: Any) -> None:
        """Ask a server for its time, which is that of half the way there and back."""
        at = time.monotonic()
        [seconds] = raw.execute(ASKED).fetchone()
        said, at = datetime.fromtimestamp(seconds, UTC), at + (time.monotonic() - at) / 2
        if self._begun is None or abs(said - self()) > MOST_OFF:
            self._begun, self._at = said, at

    def __call__(self) -> datetime:
        if self._begun is None:
            return datetime.now(UTC)
        return self._begun + timedelta(seconds=time.monotonic() - self._at)
