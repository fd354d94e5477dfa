"""The clock by which the times in a ledger are written: that of its server, if it has one. It is never put back.

Rows are told apart by such times: what was at a target before a row was sent, which of two rows came later, how long
ago the outcome of one was missed. The clocks of machines that share a ledger may be minutes apart, and any clock may be
set back.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

ASKED = "SELECT extract(epoch FROM clock_timestamp())::float8"
MOST_OFF = timedelta(seconds=1)
"""What an answer may be late by. By less, the time of a process does not jump; this machine may have slept, though."""
MOST_BEHIND = timedelta(days=1)
"""How far a clock is followed that is behind the ledger. One that is further behind was set wrongly, or had been."""
EARLIEST = datetime.min.replace(tzinfo=UTC)


class LedgerClock:
    """Returns the time, when called: that of a server, if one was asked as a session began, else that of this machine.

    It is never before a time that was returned, or that the ledger has: it goes on from there, as fast as a clock that
    nobody sets, until the other one has caught up.
    """

    def __init__(self) -> None:
        self._asked: tuple[datetime, float] | None = None
        self._last = EARLIEST, time.monotonic()

    def begin_session(self, raw: Any) -> None:
        """Ask a server for its time, which is that of half the way there and back."""
        at = time.monotonic()
        [seconds] = raw.execute(ASKED).fetchone()
        said, at = datetime.fromtimestamp(seconds, UTC), at + (time.monotonic() - at) / 2
        if self._asked is None or abs(said - self.shown()) > MOST_OFF:
            self._asked = said, at

    def shown(self) -> datetime:
        """Return what the server's clock shows, or this machine's, which may be before a time that was returned."""
        return datetime.now(UTC) if self._asked is None else _since(*self._asked, time.monotonic())

    def __call__(self) -> datetime:
        shown, at = self.shown(), time.monotonic()
        now = max(shown, _since(*self._last, at))
        self._last = now, at
        return now

    def not_before(self, moment: datetime) -> None:
        """Go on from a moment that the ledger has, if this clock is behind it."""
        at = time.monotonic()
        if moment > _since(*self._last, at):
            self._last = moment, at

    def begin_anew(self) -> None:
        """Go on from what is shown, whatever the ledger has."""
        self._last = self.shown(), time.monotonic()

    def of_here(self, moment: datetime) -> datetime:
        """Return what a server's clock showed at a moment of this machine's clock, which is past."""
        return moment if self._asked is None else min(moment + (self.shown() - datetime.now(UTC)), self())


def _since(begun: datetime, at: float, now: float) -> datetime:
    return begun + timedelta(seconds=now - at)
