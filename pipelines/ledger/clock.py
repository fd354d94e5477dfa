"""The clock that gives the times in a ledger: its server's, or else this machine's. It never goes back.

These times decide which resources were at a target before a row was sent, which of two rows came later, and how long
ago an outcome was missed. Clocks of machines that share a ledger may differ by minutes, and any clock may be set back.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.ledger.lease import Clock, utc_text
from pipelines.ledger.tables import LedgerError

ASKED = "SELECT extract(epoch FROM clock_timestamp())::float8"
MOST_OFF = timedelta(seconds=1)
"""The time that an answer may be late by. A smaller difference does not move a process's clock; a larger one may mean
that this machine slept.
"""
MOST_BEHIND = timedelta(days=1)
"""The clock is followed if it is behind the ledger by at most this. If it is further behind, it is or was wrong."""
LAST_FACT = "the ledger has facts of"
EARLIEST = datetime.min.replace(tzinfo=UTC)


class LedgerClock:
    """Return the time when called: the server's, if one was asked when a session began, else this machine's.

    The time is never before one that was returned, or that the ledger has. If the clock behind it was set back, time
    continues at normal speed until that clock has caught up.
    """

    def __init__(self) -> None:
        self._asked: tuple[datetime, float] | None = None
        self._last = EARLIEST, time.monotonic()

    def begin_session(self, raw: Any) -> None:
        """Ask a server for its time, and take that as of half the way between question and answer."""
        at = time.monotonic()
        [seconds] = raw.execute(ASKED).fetchone()
        said, at = datetime.fromtimestamp(seconds, UTC), at + (time.monotonic() - at) / 2
        if self._asked is None or abs(said - self.shown()) > MOST_OFF:
            self._asked = said, at

    def shown(self) -> datetime:
        """Return the time of the server's clock, or this machine's. It may be before a time that was returned."""
        return datetime.now(UTC) if self._asked is None else _since(*self._asked, time.monotonic())

    def __call__(self) -> datetime:
        shown, at = self.shown(), time.monotonic()
        now = max(shown, _since(*self._last, at))
        self._last = now, at
        return now

    def not_before(self, moment: datetime) -> None:
        """Continue from a moment that the ledger has, if this clock is behind it."""
        at = time.monotonic()
        if moment > _since(*self._last, at):
            self._last = moment, at

    def begin_anew(self) -> None:
        """Continue from the clock behind this one, whatever times were returned before."""
        self._last = self.shown(), time.monotonic()

    def of_here(self, moment: datetime) -> datetime:
        """Return the server's time at a past moment of this machine's clock."""
        return moment if self._asked is None else min(moment + (self.shown() - datetime.now(UTC)), self())


class Moments:
    """The moments of a ledger's transactions: none is earlier than that of any transaction that had ended when it
    began.

    Moments are UTC text; empty text means none. Safe to use from several threads.
    """

    def __init__(self, clock: Clock):
        """Begin with a clock: a `LedgerClock`, or another one, whose times are used without change."""
        self._clock, self._own = clock, clock if isinstance(clock, LedgerClock) else None
        self._is_checked = self._is_trusted = False
        self._seen = ""

    def behind(self, last: str) -> str:
        """Return the moment of a new transaction. last: the moment of the transaction before."""
        if self._is_trusted:
            return utc_text(self._clock())
        if self._own and last < self._seen:
            # In another process, a person said that the clock is right.
            self._own.begin_anew()
        self._seen = last
        self.follow(last)
        return max(utc_text(self._clock()), last)

    def follow(self, last: str) -> None:
        """Let later moments follow this one, which the ledger has."""
        if last and self._own:
            self._own.not_before(datetime.fromisoformat(last))

    def shown(self) -> datetime:
        """Return the clock's present, by which people expect files. The ledger's time may be ahead of it."""
        return self._own.shown() if self._own else self._clock()

    def check(self, last: str) -> None:
        """Raise `LedgerError` if the clock is too far behind. Checked once, when a process begins to write facts.

        A clock that is set back later is followed, because rows that were sent must get their outcome.
        """
        if self._own and last and not self._is_checked:
            said = far_behind(self._own.shown(), datetime.fromisoformat(last))
            if said:
                raise LedgerError(f"{said}. Nothing was sent")
        self._is_checked = True

    def trust(self) -> datetime:
        """Trust the clock although the ledger has later times; return the last of those times.

        Used where the ledger's times are wrong. Comparisons of the ledger's times count what comes now as later.
        """
        last = self._clock()
        if self._own:
            self._own.begin_anew()
        self._is_trusted = self._is_checked = True
        return last

    def kept(self) -> None:
        """Note that a transaction has written its fact, which later moments follow."""
        self._is_trusted = False


def far_behind(shown: datetime, last: datetime, what: str = LAST_FACT) -> str | None:
    """Return advice on a clock that is too far behind the last known time; None if it is not.

    what: words for that last time.
    """
    if last - shown <= MOST_BEHIND:
        return None
    return (
        f"the clock shows {utc_text(shown)}, and {what} {utc_text(last)}: set the clock right, or, where that time is"
        " the wrong one: chartferry import --clock-is-right"
    )


def _since(begun: datetime, at: float, now: float) -> datetime:
    return begun + timedelta(seconds=now - at)
