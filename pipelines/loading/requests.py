"""Requests of rows one by one, in threads of their own: how many are under way, and what came of them."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

from pipelines.client.pace import Circuit
from pipelines.loading.answered import Posted
from pipelines.loading.row import Row


class Answer(NamedTuple):
    """An outcome of a row, or what went wrong with it; neither where it could not be sent."""

    row: Row | None = None
    posted: Posted | BaseException | None = None


Came = SimpleQueue[Future[Any] | Answer]
"""Answers, and what is done at the book, for the thread that deals rows out."""


class Requests:
    """Requests under way. A worker that has an answer takes the next intended row itself: it waits for no dealing.

    intended: rows whose intents are committed. busy: how many are under way. unusable: why the target cannot be used.
    failed: the error that ends the sending. `_lock` guards all of these, and the circuit.
    """

    def __init__(
        self,
        send: Callable[[Row], Posted],
        confirm: Callable[[], None],
        pool: ThreadPoolExecutor,
        at_once: int,
        circuit: Circuit,
        came: Came,
    ) -> None:
        self._send, self._confirm, self._pool, self._came = send, confirm, pool, came
        self.at_once, self.circuit = at_once, circuit
        self.intended: deque[Row] = deque()
        self.busy = 0
        self.unusable: str | None = None
        self.failed: BaseException | None = None
        self._lock = threading.Lock()

    def fail(self, error: BaseException) -> None:
        self.failed = self.failed or error

    @property
    def ending(self) -> bool:
        return bool(self.unusable or self.failed)

    @property
    def may_begin(self) -> bool:
        return not self.ending and not self.circuit.open

    def free(self) -> int:
        """Return how many requests more may be under way."""
        if not self.may_begin:
            return 0
        return max(0, (1 if self.circuit.trying else self.at_once) - self.busy)

    def are_under_way(self) -> bool:
        """True if an answer is to come."""
        with self._lock:
            return bool(self.busy or (self.intended and self.free()))

    def call(self) -> None:
        """Call as many workers as may send what is intended."""
        with self._lock:
            called = min(len(self.intended), self.free())
        for _ in range(called):
            self._pool.submit(self._work)

    def _work(self) -> None:
        """In a thread of its own: send intended rows, one after another, as long as that may be."""
        with self._lock:
            row = self._take()
            if self.failed:
                self._came.put(Answer())  # the caller may wait for what is not taken any more
        while row and self._is_still_ours(row):
            try:
                posted: Posted | BaseException = row.found or self._send(row)
            except BaseException as error:  # noqa: BLE001 - it is raised where answers are taken
                posted = error
            row = self._note(row, posted)

    def _take(self) -> Row | None:
        """Return the next row to be sent, if one may be. The caller holds the lock."""
        row = self.intended.popleft() if self.intended and self.free() else None
        self.busy += bool(row)
        return row

    def _is_still_ours(self, row: Row) -> bool:
        """True if this loader has the target: since the row's commit so much time may have passed that it lost it."""
        try:
            self._confirm()
        except BaseException as error:  # noqa: BLE001 - it is raised where the sending ends
            with self._lock:
                self.intended.appendleft(row)
                self.fail(error)
                self.busy -= 1
                self._came.put(Answer())
            return False
        return True

    def _note(self, row: Row, posted: Posted | BaseException) -> Row | None:
        """Note what an answer says of the target; return the row to be sent next in its place, if any."""
        with self._lock:
            if isinstance(posted, Posted):
                self.unusable = self.unusable or posted.unusable
                self.circuit.note(posted.result.state != "in_doubt")
            else:
                self.fail(posted)
            self.busy -= 1
            self._came.put(Answer(row, posted))
            return self._take()
