"""The clock by which the times in a ledger are written: that of its server, if it has one. It is never put back.

Rows are told apart by such times: what was at a target before a row was sent, which of two rows came later, how long
ago the outcome of one was missed. The clocks of machines that share a ledger may be minutes apart, and any clock may be
set back.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.ledger.lease import Clock, utc_text
from pipelines.ledger.tables import LedgerError

ASKED = "SELECT extract(epoch FROM clock_timestamp())::float8"
MOST_OFF = timedelta(seconds=1)
"""What an answer may be late by. By less, the time of a process does not jump; this machine may have slept, though."""
MOST_BEHIND = timedelta(days=1)
"""How far a clock is followed that is behind the ledger. One that is further behind was set wrongly, or had been."""
LAST_FACT = "the ledger has facts of"
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
        """Go on from what is shown, whatever was returned before."""
        self._last = self.shown(), time.monotonic()

    def of_here(self, moment: datetime) -> datetime:
        """Return what a server's clock showed at a moment of this machine's clock, which is past."""
        return moment if self._asked is None else min(moment + (self.shown() - datetime.now(UTC)), self())


class Moments:
    """The moments of a ledger's transactions: none is earlier than that of one that had ended when it began.

    Moments are UTC text; an empty one is none. Safe to use from several threads.
    """

    def __init__(self, clock: Clock):
        """clock: a `LedgerClock`, or another one, which is taken as it is."""
        self._clock, self._own = clock, clock if isinstance(clock, LedgerClock) else None
        self._is_checked = self._is_trusted = False
        self._seen = ""

    def behind(self, last: str) -> str:
        """Return the moment of a transaction. last: that of the one before."""
        if self._is_trusted:
            return utc_text(self._clock())
        if self._own and last < self._seen:
            # A person said in another process that the clock is right.
            self._own.begin_anew()
        self._seen = last
        self.follow(last)
        return max(utc_text(self._clock()), last)

    def follow(self, last: str) -> None:
        """Let the moments that come be later than this one, which the ledger has."""
        if last and self._own:
            self._own.not_before(datetime.fromisoformat(last))

    def shown(self) -> datetime:
        """Return the present, by which people expect files: not that of the ledger, which may be ahead for a while."""
        return self._own.shown() if self._own else self._clock()

    def check(self, last: str) -> None:
        """Raise `LedgerError` for a clock that is too far behind, as a process begins to tell facts.

        One that is set back later is followed: what was sent has to have its outcome.
        """
        if self._own and last and not self._is_checked:
            said = far_behind(self._own.shown(), datetime.fromisoformat(last))
            if said:
                raise LedgerError(f"{said}. Nothing was sent")
        self._is_checked = True

    def trust(self) -> datetime:
        """Let moments go on from what the clock shows, though the ledger has later ones; return the last one before.

        For where these are the wrong ones. Where the ledger's own times are compared, what came then counts as later.
        """
        last = self._clock()
        if self._own:
            self._own.begin_anew()
        self._is_trusted = self._is_checked = True
        return last

    def kept(self) -> None:
        """Note that a transaction has its fact: others follow on it."""
        self._is_trusted = False


def far_behind(shown: datetime, last: datetime, what: str = LAST_FACT) -> str | None:
    """Say what to do about a clock that is too far behind what came last; None where it is not.

    what: words for what came last.
    """
    if last - shown <= MOST_BEHIND:
        return None
    return (
        f"the clock shows {utc_text(shown)}, and {what} {utc_text(last)}: set the clock right, or, where that time is"
        " the wrong one: chartferry import --clock-is-right"
    )


def _since(begun: datetime, at: float, now: float) -> datetime:
    return begun + timedelta(seconds=now - at)
