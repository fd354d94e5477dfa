"""The line of what waits for the writer, and whose turn is next.

Single writes and large ones take turns: after a large turn come all single writes that wait, and after these one large
turn. A large turn ends after a time, not a number of entries: on a slow or busy machine it holds fewer of them. It is
longer while nobody makes single writes: each commit has a price of its own.
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
"""Entries of a request from which on it is large."""
LARGE_BYTES = 512 << 10
TURN, LONG_TURN = 0.1, 0.25
"""Seconds that a large turn may take: requests that wait join it as long as it is likely to be over by then.

Long: where no single write has come for `QUIET` seconds. The first of them waits for a whole long turn, and for the
turn of its own. Twice as long where a second request joins by that: two bundles written together cost a fifth less than
one after the other.
"""
QUIET = 5.0
MOST_SMALL = 500
"""Entries of a turn of single writes."""
MOST_BYTES = 64 << 20
COMPANY = 0.001
"""Seconds for one more single write to come, where as many were under way before. A commit takes several times that."""
_SLOW = 0.0002
"""Seconds of an entry, until some were measured."""


@dataclass(slots=True)
class Waiting:
    """Entries that belong to one request, and where their results go: a result or FhirError each.

    whole: all are stored, or none: then the results end with the first FhirError.
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
        """True if a turn has nothing else."""
        return self.whole

    @property
    def stored(self) -> int:
        """Entries that its turn stored: none where it was withdrawn, failed, or was refused as a whole."""
        if not self.future.done() or self.future.cancelled() or self.future.exception():
            return 0
        results = self.future.result()
        if self.whole and results and isinstance(results[-1], FhirError):
            return 0
        return sum(not isinstance(result, FhirError) for result in results)


@dataclass(slots=True)
class Function:
    """A function that is run in a transaction of its own. resources, records: as of `Writer.transact`."""

    function: Callable[[Connection], Any]
    resources: bool
    records: Collection[str] | None = None
    future: "Future[Any]" = field(default_factory=Future)
    alone: bool = True

    @property
    def large(self) -> bool:
        return self.resources


Work = Waiting | Function


class Line:
    """The queue of the writer. `put` and `close` from any thread, the rest from one."""

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
        """Let `turn` end, once nothing waits."""
        self._arriving.put(None)

    def __len__(self) -> int:
        return self._arriving.qsize() + sum(map(len, self._waiting.values()))

    def turn(self, patience: float | None = None) -> list[Work]:
        """Return the works whose turn it is, one or several that are written together; none once all is done.

        Args:
            patience: seconds to wait for one; None for ever.

        Raises:
            queue.Empty: none has come in that time.
        """
        self._sort()
        while not any(self._waiting.values()):
            if self._ended:
                return []
            self._receive(self._arriving.get(timeout=patience))
            # More may have come until this thread went on: together they take one commit.
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
        requests = [work for work in works if isinstance(work, Waiting) and not work.future.cancelled()]
        if requests:
            # Who was answered is likely to come back, and would else take turns with those who wait.
            self._company = sum(not work.large for work in requests) + len(self)
        entries = sum(work.stored for work in requests)
        if entries >= LARGE:
            # Slowly down: the entries of one turn may be cheaper than those that come next.
            self._pace = max(seconds / entries, self._pace / 2)

    def _in(self, seconds: float) -> float:
        """The entries of a turn that takes so long, or twice as long if two requests are done by then."""
        most = seconds / self._pace
        two = sum(len(work.entries) for work in islice(self._waiting[True], 2) if isinstance(work, Waiting))
        return max(most, two) if two <= 2 * most else most

    def _sort(self) -> None:
        """Receive what has arrived."""
        for _ in range(self._arriving.qsize()):
            self._receive(self._arriving.get())

    def _receive(self, work: Work | None) -> None:
        if work is None:
            self._ended = True
        else:
            self._waiting[work.large].append(work)
            # Not a sign-in: an import begins with one, and each of its bundles would have a commit of its own.
            if isinstance(work, Waiting) and not work.large:
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
        """Take works from the beginning of a row, as long as they may be together: one at least, unless started."""
        group: list[Work] = []
        entries = size = 0
        while waiting:
            work = waiting[0]
            if isinstance(work, Waiting) and not work.alone:
                entries, size = entries + len(work.entries), size + work.size
            if (group or started) and (work.alone or entries > most or size > MOST_BYTES):
                break
            group.append(waiting.popleft())
            if work.alone:
                break
        return group
