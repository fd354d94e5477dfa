"""The queue of the writer, and the choice of what it writes next.

A turn is what the writer stores by one commit. Turns of single writes and of large requests alternate, so that neither
kind waits for long: all single writes that wait, then one turn of large requests. A large turn is bounded by time and
not by a number of entries, as a slow machine writes fewer in that time. While nobody makes single writes, large turns
are longer: fewer commits cost less.
"""

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from fhir_service.interface.outcomes import FhirError
from fhir_service.writing.entry import Entry

LARGE = 50
"""A request is large from so many entries on."""
LARGE_BYTES = 512 << 10
TURN, LONG_TURN = 0.1, 0.25
"""Seconds that a large turn may take. Waiting requests join it while it is likely to end within that time.

A turn may be long when no single write has come for `QUIET` seconds. The next single write may then wait for a whole
long turn before its own. A long turn may take twice as long if that lets a second request join: two bundles written
together cost a fifth less than two in a row.
"""
QUIET = 5.0
MOST_SMALL = 500
"""The most entries of a turn of single writes."""
MOST_BYTES = 64 << 20
COMPANY = 0.001
"""Seconds to wait for one more single write while fewer have come than before. A commit takes several times that."""
_SLOW = 0.0002
"""The seconds that an entry is assumed to take until some were measured."""


@dataclass(slots=True)
class WaitingEntries:
    """The entries of one request, and the future that gets a result or a FhirError for each.

    whole: store all entries or none. If one is refused, the results end with its FhirError.
    """

    entries: Sequence[Entry]
    whole: bool = False
    future: "Future[list[Any]]" = field(default_factory=Future)

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def large(self) -> bool:
        return len(self.entries) >= LARGE or self.size > LARGE_BYTES

    @property
    def alone(self) -> bool:
        """True if nothing else may share its turn."""
        return self.whole

    @property
    def stored(self) -> int:
        """The number of entries that were stored: 0 if the request was withdrawn, failed or was refused as a whole."""
        if not self.future.done() or self.future.cancelled() or self.future.exception():
            return 0
        results = self.future.result()
        if self.whole and results and isinstance(results[-1], FhirError):
            return 0
        return sum(not isinstance(result, FhirError) for result in results)


@dataclass(slots=True)
class WriterFunction:
    """A function to run in a transaction of its own. For `resources` and `records` see `Writer.transact`."""

    function: Callable[[Connection], Any]
    resources: bool
    records: Collection[str] | None = None
    future: "Future[Any]" = field(default_factory=Future)
    alone: bool = True

    @property
    def large(self) -> bool:
        return self.resources


Work = WaitingEntries | WriterFunction


class WriterQueue:
    """The queue of the writer. Any thread may call `put` and `close`; the rest is for the writer's thread."""

    def __init__(self) -> None:
        self._arriving: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._waiting: dict[bool, deque[Work]] = {False: deque(), True: deque()}
        self._before_large = 0
        self._was_large = False
        self._ended = False
        self._company = 0
        self._pace = _SLOW
        self._single_at = -math.inf

    def put(self, work: Work) -> None:
        self._arriving.put(work)

    def close(self) -> None:
        """Let `turn` return nothing as soon as nothing waits."""
        self._arriving.put(None)

    def __len__(self) -> int:
        return self._arriving.qsize() + sum(map(len, self._waiting.values()))

    def turn(self, patience: float | None = None) -> list[Work]:
        """Return the works of the next turn, which are written together; none once the queue is closed and empty.

        Args:
            patience: seconds to wait for work; None waits for ever.

        Raises:
            queue.Empty: nothing came in that time.
        """
        self._sort()
        while not any(self._waiting.values()):
            if self._ended:
                return []
            self._receive(self._arriving.get(timeout=patience))
            # Take what else came while this thread was waking up: together they need one commit.
            self._sort()
        if self._was_large:
            self._before_large = len(self._waiting[False])
        self._was_large = bool(self._waiting[True]) and self._before_large <= 0
        if self._was_large:
            is_quiet = time.monotonic() - self._single_at > QUIET
            return self._group(self._waiting[True], self._in(LONG_TURN) if is_quiet else TURN / self._pace)
        group = self._small_turn()
        self._before_large -= len(group)
        return group

    def took(self, works: Sequence[Work], seconds: float) -> None:
        """Note how long a turn took."""
        requests = [work for work in works if isinstance(work, WaitingEntries) and not work.future.cancelled()]
        if requests:
            # A client that was just answered is likely to write again. Waiting for it saves a commit of its own.
            self._company = sum(not work.large for work in requests) + len(self)
        entries = sum(work.stored for work in requests)
        if entries >= LARGE:
            # Halve it at most: the next entries may cost more than these did.
            self._pace = max(seconds / entries, self._pace / 2)

    def _in(self, seconds: float) -> float:
        """Return how many entries fit into a time, or into twice that time if two requests can end in it."""
        most = seconds / self._pace
        two = sum(len(work.entries) for work in islice(self._waiting[True], 2) if isinstance(work, WaitingEntries))
        return max(most, two) if two <= 2 * most else most

    def _sort(self) -> None:
        """Sort all arrived work into single and large."""
        for _ in range(self._arriving.qsize()):
            self._receive(self._arriving.get())

    def _receive(self, work: Work | None) -> None:
        if work is None:
            self._ended = True
        else:
            self._waiting[work.large].append(work)
            # A sign-in does not count. An import begins with one, and would get a commit for each of its bundles.
            if isinstance(work, WaitingEntries) and not work.large:
                self._single_at = time.monotonic()

    def _small_turn(self) -> list[Work]:
        group = self._group(self._waiting[False], MOST_SMALL)
        while not group[0].alone and len(group) < self._company and not any(self._waiting.values()) and not self._ended:
            try:
                self._receive(self._arriving.get(timeout=COMPANY))
            except queue.Empty:
                break
            self._sort()
            group += self._group(self._waiting[False], MOST_SMALL - len(group), started=True)
        return group

    @staticmethod
    def _group(waiting: deque[Work], most: float, started: bool = False) -> list[Work]:
        """Take works from the front of a queue while they may share a turn.

        started: the turn has work already. Otherwise at least one is taken.
        """
        group: list[Work] = []
        entries = size = 0
        while waiting:
            work = waiting[0]
            if isinstance(work, WaitingEntries) and not work.alone:
                entries, size = entries + len(work.entries), size + work.size
            if (group or started) and (work.alone or entries > most or size > MOST_BYTES):
                break
            group.append(waiting.popleft())
            if work.alone:
                break
        return group
