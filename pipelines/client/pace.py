"""The pace of requests to a target: how many at once and per second, the settling time, pauses, and a circuit breaker.

Settings of the environment: `CHARTFERRY_AT_ONCE`, `CHARTFERRY_REQUESTS_PER_SECOND`, `CHARTFERRY_SETTLING_SECONDS` and
`CHARTFERRY_WORKERS`.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipelines.client.threads import A_WHILE, nobody_waits
from pipelines.home.exits import BadSetting

AT_ONCE = 8
SETTLING_SECONDS = 900.0
MOST_WORKERS = 64
FAILURES_IN_A_ROW = 5
OPENINGS = 3
LONGEST_WAIT_SECONDS = 300.0


@dataclass(frozen=True)
class Pace:
    """The limits of a load's requests.

    at_once: requests under way at the bare interface. settling_seconds: the time after which an unknown outcome counts
    as settled; it must exceed the target's longest request. per_second: limit of all requests together; None for no
    limit. workers: processes that load a batch and share these limits. here: how many of them the process that holds
    the target starts; others join as steps of a run on other hosts. None to start all.
    """

    at_once: int = AT_ONCE
    settling_seconds: float = SETTLING_SECONDS
    per_second: float | None = None
    workers: int = 1
    here: int | None = None


USUAL = Pace()


def pace_of(environ: Mapping[str, str]) -> Pace:
    """Return the pace that the environment asks for. Raises `BadSetting`."""
    settling = _number(environ, "CHARTFERRY_SETTLING_SECONDS", 0, 86_400)
    return Pace(
        int(_number(environ, "CHARTFERRY_AT_ONCE", 1, 64) or AT_ONCE),
        SETTLING_SECONDS if settling is None else settling,
        _number(environ, "CHARTFERRY_REQUESTS_PER_SECOND", 0.01, 1e6),
        int(_number(environ, "CHARTFERRY_WORKERS", 1, MOST_WORKERS) or 1),
    )


def retention_of(environ: Mapping[str, str]) -> float | None:
    """Return for how many days a finished batch's source rows are kept; None for ever. Raises `BadSetting`."""
    return _number(environ, "CHARTFERRY_RETENTION_DAYS", 0, 36_500)


def _number(environ: Mapping[str, str], name: str, least: float, most: float) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not least <= found <= most:
        raise BadSetting(f"{name} is not a number from {least:g} to {most:g}")
    return found


class Limiter:
    """A limit on requests, called before each: it waits so that no second has more than `per_second` requests."""

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._apart, self._clock, self._sleep = 1 / per_second, clock, sleep
        self._lock = threading.Lock()
        self._next = 0.0

    def __call__(self) -> None:
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._apart
        if turn > now:
            self._sleep(turn - now)


def limiter_of(pace: Pace) -> Callable[[], None]:
    """Return the function to call before each request."""
    return Limiter(pace.per_second) if pace.per_second else lambda: None


@dataclass(slots=True)
class RetryPauses:
    """Growing, jittered pauses (seconds) between attempts, limited in number and length.

    is_over: set when the work ends. Pauses then end within a second, and no further attempt follows; likewise in
    threads whose results nobody waits for. sleep: replaces the wait, for tests.
    """

    attempts: int = 7
    first: float = 0.5
    longest: float = 30.0
    sleep: Callable[[float], None] | None = None
    random: Callable[[], float] = random.random
    is_over: bool = False

    @property
    def has_ended(self) -> bool:
        return self.is_over or nobody_waits()

    def pauses(self) -> Iterator[float]:
        """Yield one pause for each attempt but the last."""
        for attempt in range(self.attempts - 1):
            yield min(self.longest, self.first * 2**attempt) * (0.5 + self.random() / 2)

    def wait(self, pause: float, at_least: float | None = None) -> None:
        """Sleep for the pause, or for the time that the target asked for (`retry-after`) if that is longer."""
        seconds = min(max(pause, at_least or 0.0), LONGEST_WAIT_SECONDS)
        (self.sleep or self._sleep)(seconds)

    def _sleep(self, seconds: float) -> None:
        while seconds > 0 and not self.has_ended:
            time.sleep(min(seconds, A_WHILE))
            seconds -= A_WHILE


PATIENT = RetryPauses()


class Attempts:
    """The attempts at one request, with a pause before each but the first. number: that of the last attempt."""

    def __init__(self, patience: RetryPauses) -> None:
        self._patience, self._pauses = patience, patience.pauses()
        self.number = 1

    def next(self, asked: float | None = None, final: bool = False) -> bool:
        """Wait for the next attempt; return False if none is left, or if another is of no use (`final`).

        asked: the pause that the target asked for.
        """
        pause = None if final else next(self._pauses, None)
        if pause is None:
            return False
        self._patience.wait(pause, asked)
        self.number += 1
        return not self._patience.has_ended


class CircuitBreaker:
    """A circuit breaker. It opens after failures in a row, so that a target in trouble does not put every row in
    doubt.

    While it is open, nothing is sent. After `half_open`, one request at a time is sent, and a success closes it. It
    has `given_up` after several openings without a success.
    """

    def __init__(self, failures: float = FAILURES_IN_A_ROW, openings: int = OPENINGS) -> None:
        self._failures, self._openings = failures, openings
        self._in_a_row = self._opened = 0
        self.open = self.trying = False

    @property
    def given_up(self) -> bool:
        return self.open and self._opened > self._openings

    def note(self, succeeded: bool) -> None:
        """Note the outcome of one request."""
        if succeeded:
            self._in_a_row = self._opened = 0
            self.open = self.trying = False
            return
        self._in_a_row += 1
        if not self.open and (self.trying or self._in_a_row >= self._failures):
            self.open, self.trying = True, False
            self._opened += 1

    def half_open(self) -> None:
        self.open, self.trying = False, True
