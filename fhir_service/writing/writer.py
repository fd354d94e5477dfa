"""The writer: one thread that stores all waiting writes together, by one durable commit (group commit).

There is no other way to write; a single create is a batch of one. `line.py` chooses what is next, `commits.py` carries
it out and stores it.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection

from fhir_service.interface.outcomes import EXCEPTION, UNAVAILABLE, FhirError
from fhir_service.interface.site import Site
from fhir_service.store.bodies import BodyCache
from fhir_service.store.disk_errors import unavailable
from fhir_service.store.store import Store
from fhir_service.writing.commits import CommitFailed, Commits
from fhir_service.writing.contending import Witnessed
from fhir_service.writing.entry import Entry
from fhir_service.writing.line import WaitingEntries, Work, WriterFunction, WriterQueue

REST = 0.05
"""Seconds without work after which the writer brings into the tables what is stored ahead of them.

A client that was just answered writes its next request sooner. Otherwise each round of requests would cost two commits.
"""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Writer:
    """The only writer of a store in this process."""

    def __init__(
        self,
        store: Store,
        site: Site,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        bodies: BodyCache,
        committed: Callable[[int], None] = lambda _: None,
        collided: Callable[[], None] = lambda: None,
        witnessed: Witnessed = lambda _: None,
    ) -> None:
        """Start the thread.

        Args:
            bodies: the cache of reads.
            committed: called with the number of entries of each commit.
            collided: called for each batch that is carried out again because another process was first.
            witnessed: called with all versions of a batch before they are stored, if other processes write too.
        """
        self._dialect = store.dialect
        self._commits = Commits(store, site, clock, new_id, bodies, committed, collided, witnessed)
        self._line = WriterQueue()
        self._busy_since = -math.inf
        self._closed = threading.Event()
        store.catch_up = self.catch_up
        store.in_turn = lambda work: self.transact(lambda _: work(), resources=False)
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    # --- for callers ---

    def submit(self, entries: Sequence[Entry], whole: bool = False) -> "Future[list[Any]]":
        """Write entries by one commit. The future gives a result or a FhirError for each; cancel it to withdraw them.

        whole: store all or none. If one is refused, its FhirError is the last result.
        """
        waiting = WaitingEntries(entries, whole)
        self._put(waiting)
        return waiting.future

    def transact(
        self, function: Callable[[Connection], T], resources: bool = True, records: Collection[str] | None = None
    ) -> T:
        """Run a function in the writer's thread, in a transaction of its own, and return its value.

        Args:
            function: gets the connection of the transaction.
            resources: False if the function changes neither resources nor records: caches of them stay valid.
            records: the references of the records that the function changes, if it changes nothing else.
        """
        work = WriterFunction(function, resources, records)
        self._put(work)
        value: T = work.future.result()
        return value

    def catch_up(self) -> None:
        """Wait until the tables have all that was stored before. Any thread may call it. Raises FhirError."""
        if not self._commits.ahead or threading.current_thread() is self._thread:
            return
        reader: Future[None] = Future()
        self._commits.readers.put(reader)
        # An empty function makes the writer catch up. An earlier commit to the tables may release the reader first.
        self._put(WriterFunction(lambda _: None, resources=False))
        try:
            reader.result()
        except Exception:  # noqa: BLE001 - the log has its class
            raise FhirError(UNAVAILABLE) from None

    def next_seq(self) -> int:
        """Return a fresh number. Call it in the writer's thread only."""
        return self._commits.next_seq()

    def idle(self) -> float:
        """Return the seconds since the last commit; infinite if there was none, or the last attempt failed."""
        return self._commits.times.idle()

    def stuck(self, seconds: float) -> bool:
        """True if the thread has ended, or if one turn has taken longer than these seconds."""
        busy = self._busy_since > -math.inf and time.monotonic() - self._busy_since > seconds
        return busy or not self._thread.is_alive()

    def close(self) -> None:
        """Write what waits, then end the thread."""
        self._closed.set()
        self._line.close()
        self._thread.join()
        self._commits.close()

    def _put(self, work: Work) -> None:
        if self._closed.is_set():
            raise FhirError(UNAVAILABLE)
        self._line.put(work)

    # --- the thread ---

    def _run(self) -> None:
        while works := self._turn():
            self._busy_since = began = time.monotonic()
            if isinstance(works[0], WriterFunction):
                self._transaction(works[0])
            else:
                waiting = [work for work in works if isinstance(work, WaitingEntries)]
                self._write([work for work in waiting if work.future.set_running_or_notify_cancel()])
            self._line.took(works, time.monotonic() - began)
            self._commits.settle()
            self._busy_since = -math.inf
        self._commits.bring_up()

    def _turn(self) -> list[Work]:
        """Return the works of the next turn. When none has come for a while, bring the tables up to date first."""
        if self._commits.ahead or self._commits.owes:
            try:
                return self._line.turn(REST)
            except queue.Empty:
                self._commits.bring_up()
        return self._line.turn()

    def _transaction(self, work: WriterFunction) -> None:
        if not work.future.set_running_or_notify_cancel():
            return
        try:
            value = self._commits.run(work.function, work.resources, work.records)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            work.future.set_exception(unavailable(error) if self._dialect.passing(error) else error)
            return
        work.future.set_result(value)

    def _write(self, group: list[WaitingEntries]) -> None:
        entries = [entry for waiting in group for entry in waiting.entries]
        try:
            results = self._commits.carry_out(entries, any(waiting.whole for waiting in group))
        except Exception as error:  # noqa: BLE001 - the thread goes on, the requests are answered
            if len(group) > 1 and not isinstance(error, CommitFailed) and not self._dialect.passing(error):
                # One request may have made all of them fail: write each by itself.
                for waiting in group:
                    self._write([waiting])
                return
            self._commits.times.failed()
            # Log the class only: exception texts may hold patient data.
            log.error("a commit failed, and its requests are answered with an error: %s", type(error).__name__)  # noqa: TRY400
            # After a failure before the commit nothing is stored. After a failed commit nobody knows.
            unknown = isinstance(error, CommitFailed)
            for waiting in group:
                waiting.future.set_exception(FhirError(EXCEPTION) if unknown else unavailable(error))
            return
        for waiting in group:
            count = len(waiting.entries)
            waiting.future.set_result(results[:count])
            results = results[count:]
