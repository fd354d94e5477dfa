"""The one way to write: a thread that turns what is waiting into one batch with one durable commit (group commit).

A single create is a batch of one. For each batch it collects what the entries ask about, fetches it with a constant
number of statements, lets the entries act in order, adds all rows, commits, and answers.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from fhir_service.contending import Contender, InDoubt, Outcome, contender_of
from fhir_service.interface.outcomes import EXCEPTION, UNAVAILABLE, FhirError
from fhir_service.interface.site import Site
from fhir_service.store.bodies import Bodies
from fhir_service.store.store import Store
from fhir_service.store.view import Changes, Kept, Needs, Questionnaires, View, one_by_one

MOST_ENTRIES = 2000
MOST_BYTES = 64 * 1024 * 1024
MOST_AHEAD = 200
"""Entries of a commit that is stored ahead of the tables. To write more to the tables at once costs less."""
MOST_BYTES_AHEAD = 512 << 10
CALM = 0.2
"""Seconds after a commit of many entries in which small ones go into the tables too."""
REST = 0.005
"""Seconds without work after which what is stored ahead of the tables is brought into them."""
COMPANY = 0.001
"""Seconds for one more single write to come, where as many were under way before. A commit takes several times that."""
# Seconds before each further attempt at what failed before its commit.
PAUSES = (0.05, 0.5)

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desk:
    """The tools of an entry: the view, the changes, and the moment."""

    view: View
    changes: Changes
    site: Site
    now: datetime
    new_id: Callable[[], str]


class Entry(Protocol):
    """One write. `act` checks the rules against the view and adds to the changes; or it raises FhirError."""

    size: int

    def ask(self, needs: Needs) -> None: ...

    def act(self, desk: Desk) -> Any: ...


@dataclass(slots=True)
class _Waiting:
    """Entries that belong to one request, and where their results go: a result or FhirError each.

    whole: all are stored, or none: then the results end with the first FhirError.
    """

    entries: Sequence[Entry]
    whole: bool = False
    future: "Future[list[Any]]" = field(default_factory=Future)

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


@dataclass(slots=True)
class _Transaction:
    """A function that is run in a transaction of its own."""

    function: Callable[[Connection], Any]
    resources: bool
    future: "Future[Any]" = field(default_factory=Future)


class CommitFailed(Exception):
    """A commit was not answered with success."""


class _Turn:
    """The transaction of a batch. It begins when something is asked of the tables, or is to be written there."""

    def __init__(self, begin: Callable[[], Connection]) -> None:
        self._begin = begin
        self._begun: Connection | None = None

    def connection(self) -> Connection:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def close(self) -> None:
        """End the transaction. What was not committed is undone."""
        if self._begun is not None:
            self._begun.close()


class Writer:
    """Owns writing to a store."""

    def __init__(
        self,
        store: Store,
        site: Site,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        bodies: Bodies,
        committed: Callable[[int], None] = lambda _: None,
        collided: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread.

        Args:
            bodies: the cache of reads.
            committed: called with the number of entries of each commit.
            collided: called for each batch that is run again, as another process was first.
        """
        self._store, self._site, self._clock, self._new_id, self._committed = store, site, clock, new_id, committed
        self._contender = contender_of(store, collided)
        self._questionnaires, self._bodies = Questionnaires(site), bodies
        self._kept: Kept | None = None
        self._seq = store.last_seq()
        self._under_way = 0
        self._stored_at = self._busy_since = self._much_at = -math.inf
        self._queue: queue.SimpleQueue[_Waiting | _Transaction | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._readers: list[Future[None]] = []
        self._readers_lock = threading.Lock()
        store.catch_up = self.catch_up
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    # --- for callers ---

    def submit(self, entries: Sequence[Entry], whole: bool = False) -> "Future[list[Any]]":
        """Write entries in one commit. The future gives a result or FhirError for each; cancelling withdraws them.

        whole: store all or none. Where one is refused, its FhirError is the last result.
        """
        waiting = _Waiting(entries, whole)
        self._put(waiting)
        return waiting.future

    def transact(self, function: Callable[[Connection], T], resources: bool = True) -> T:
        """Run a function in the writer's thread, in a transaction of its own; wait for its value.

        resources: False for a function that changes no resource, so that what is kept of them stays good.
        """
        work = _Transaction(function, resources)
        self._put(work)
        value: T = work.future.result()
        return value

    def catch_up(self) -> None:
        """Wait until the tables have all that was stored before, from any thread. Raises the outcome of a failure."""
        if self._store.ahead is None or not self._store.ahead.waits or threading.current_thread() is self._thread:
            return
        reader: Future[None] = Future()
        with self._readers_lock:
            self._readers.append(reader)
        # The next commit to the tables may bring it there before this has its turn.
        self._put(_Transaction(lambda _: None, resources=False))
        try:
            reader.result()
        except Exception:  # noqa: BLE001 - the log has its class
            raise FhirError(UNAVAILABLE) from None

    def next_seq(self, count: int = 1) -> int:
        """The first of `count` fresh numbers. Only for what runs in the writer's thread."""
        first = self._seq + 1
        self._seq += count
        return first

    def idle(self) -> float:
        """Return the seconds since something was stored; infinite if nothing was, or the last attempt failed."""
        return time.monotonic() - self._stored_at

    def stuck(self, seconds: float) -> bool:
        """True if the thread has ended, or has been at one thing for more than these seconds."""
        busy = self._busy_since > -math.inf and time.monotonic() - self._busy_since > seconds
        return busy or not self._thread.is_alive()

    def close(self) -> None:
        """Finishes what is waiting and ends the thread."""
        self._closed.set()
        self._queue.put(None)
        self._thread.join()
        if self._contender:
            self._contender.close()

    def _put(self, work: _Waiting | _Transaction) -> None:
        if self._closed.is_set():
            raise FhirError(UNAVAILABLE)
        self._queue.put(work)

    # --- the thread ---

    def _run(self) -> None:
        held: _Waiting | _Transaction | None = None
        while True:
            work = held or self._next()
            held = None
            if work is None:
                self._end()
                return
            self._busy_since = time.monotonic()
            if isinstance(work, _Transaction):
                self._transaction(work)
            else:
                group, held = self._group(work)
                self._write(group)
                # Who was answered is likely to come back, and would else take turns with those who wait.
                self._under_way = len(group) + self._queue.qsize()
            self._settle()
            self._busy_since = -math.inf

    def _next(self) -> _Waiting | _Transaction | None:
        """The next work. What is ahead of the tables goes into them while there is none."""
        if self._store.ahead and self._store.ahead.waits:
            try:
                return self._queue.get(timeout=REST)
            except queue.Empty:
                self._bring_up()
        return self._queue.get()

    def _end(self) -> None:
        if self._store.ahead:
            self._bring_up()
            self._store.ahead.close()

    def _bring_up(self) -> None:
        """Bring into the tables what is ahead of them. It is stored: a failure changes nothing for who was answered."""
        try:
            self._catch_up()
        except Exception as error:  # noqa: BLE001 - it is tried again before each commit to the tables
            self._stored_at = -math.inf
            log.error("what is stored was not brought into the tables: %s", type(error).__name__)  # noqa: TRY400

    def _catch_up(self) -> None:
        # A reader may have come while the tables were caught up: it is let go even where nothing is ahead any more.
        with self._readers_lock:
            readers, self._readers = self._readers, []
        try:
            if self._store.ahead and self._store.ahead.waits:
                self._store.ahead.catch_up(self._store.engine)
        except BaseException as error:
            for reader in readers:
                reader.set_exception(error)
            raise
        for reader in readers:
            reader.set_result(None)

    def _group(self, first: _Waiting) -> tuple[list[_Waiting], _Waiting | _Transaction | None]:
        """Return waiting work within the bounds in number and bytes, and work that was taken and does not belong."""
        group, count, size = [first], len(first.entries), first.size
        if first.whole:
            return group, None
        while count < MOST_ENTRIES and size < MOST_BYTES:
            alone = len(group) == count < self._under_way
            try:
                work = self._queue.get(timeout=COMPANY) if alone else self._queue.get_nowait()
            except queue.Empty:
                break
            if work is None:
                self._queue.put(None)
                break
            if isinstance(work, _Transaction) or work.whole:
                return group, work
            group.append(work)
            count, size = count + len(work.entries), size + work.size
        return group, None

    def _transaction(self, work: _Transaction) -> None:
        if not work.future.set_running_or_notify_cancel():
            return
        seq = self._seq
        try:
            # Only the beginning is tried again: the function may keep what it met.
            with self._patiently(lambda: self._begun(work.resources)) as connection:
                value = work.function(connection)
                with self._bodies.changing_all() if work.resources else nullcontext():
                    _commit(connection.commit)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self._seq = seq
            work.future.set_exception(FhirError(UNAVAILABLE) if self._store.dialect.passing(error) else error)
            return
        if work.resources:
            self._questionnaires, self._kept = Questionnaires(self._site), None
        work.future.set_result(value)

    def _write(self, group: list[_Waiting]) -> None:
        self._write_group([waiting for waiting in group if waiting.future.set_running_or_notify_cancel()])

    def _write_group(self, group: list[_Waiting]) -> None:
        entries = [entry for waiting in group for entry in waiting.entries]
        whole = any(waiting.whole for waiting in group)
        try:
            results = self._patiently(lambda: self._commit(entries, whole))
        except Exception as error:  # noqa: BLE001 - the thread goes on, the requests are answered
            if len(group) > 1 and not isinstance(error, CommitFailed) and not self._store.dialect.passing(error):
                # What fails for one request's sake is not the others' matter.
                for waiting in group:
                    self._write_group([waiting])
                return
            self._stored_at = -math.inf
            # The class only: exception texts may hold values.
            log.error("a batch was not stored: %s", type(error).__name__)  # noqa: TRY400
            # Only what failed before the commit is surely not stored; a failing commit leaves it unknown.
            unknown = isinstance(error, CommitFailed)
            for waiting in group:
                waiting.future.set_exception(FhirError(EXCEPTION if unknown else UNAVAILABLE))
            return
        for waiting in group:
            count = len(waiting.entries)
            waiting.future.set_result(results[:count])
            results = results[count:]

    def _settle(self) -> None:
        """Do what the database has put off. The batch is stored and answered: a failure here changes nothing for it."""
        if self._store.ahead and self._store.ahead.full:
            self._bring_up()
        try:
            self._store.dialect.settle(self._store.engine)
        except Exception as error:  # noqa: BLE001 - the thread goes on
            log.error("the store was not settled: %s", type(error).__name__)  # noqa: TRY400

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do what stores nothing when it fails, and again after failures that may pass."""
        for pause in PAUSES:
            seq = self._seq
            try:
                return work()
            except Exception as error:
                self._seq = seq
                if not self._store.dialect.passing(error):
                    raise
                log.warning("the database failed, trying again: %s", type(error).__name__)
            time.sleep(pause)
        return work()

    def _begun(self, resources: bool = True) -> Connection:
        """A connection in a transaction that alone may write; numbers follow those given by any process."""
        self._catch_up()
        connection = self._store.engine.connect()
        try:
            # Statements below SQLAlchemy begin none by themselves, and each would be stored alone.
            connection.begin()
            last = self._store.dialect.lock(connection, resources)
        except BaseException:
            connection.close()
            raise
        self._seq = self._seq if last is None else last
        return connection

    def _commit(self, entries: list[Entry], whole: bool) -> list[Any]:
        needs = Needs()
        for entry in entries:
            entry.ask(needs)
        if self._contender:
            return self._commit_beside_others(self._contender, needs, entries, whole)
        # Only what was committed may be kept.
        kept, self._kept = self._kept, None
        with closing(_Turn(self._begun)) as turn:
            if kept is None or kept.full:
                kept = Kept.read(turn.connection())
            view = View(partial(one_by_one, self._store.dialect, turn.connection), needs, self._questionnaires, kept)
            changes = Changes(self.next_seq)
            desk = Desk(view, changes, self._site, self._clock(), self._new_id)
            results = _outcomes(entries, desk, whole)
            if whole and any(isinstance(result, FhirError) for result in results[-1:]):
                return results
            if changes:
                self._keep(turn, changes, entries)
                self._stored_at = time.monotonic()
                self._committed(len(entries))
        self._kept = kept
        return results

    def _commit_beside_others(self, contender: Contender, needs: Needs, entries: list[Entry], whole: bool) -> list[Any]:
        def carry_out(view: View, changes: Changes) -> Outcome:
            results = _outcomes(entries, Desk(view, changes, self._site, self._clock(), self._new_id), whole)
            return Outcome(results, not (whole and any(isinstance(result, FhirError) for result in results[-1:])))

        try:
            results, stored = contender.commit(needs, self._questionnaires, carry_out)
        except InDoubt:
            raise CommitFailed("InDoubt") from None
        if stored:
            self._stored_at = time.monotonic()
            self._committed(len(entries))
        return results

    def _keep(self, turn: _Turn, changes: Changes, entries: list[Entry]) -> None:
        """Store changes durably: a few that only add are stored ahead of the tables, unless much is stored just now.

        The commits of what is much bring the rest into the tables. Readers would wait for them.
        """
        much = len(entries) > MOST_AHEAD or sum(entry.size for entry in entries) > MOST_BYTES_AHEAD
        if much:
            self._much_at = time.monotonic()
        calm = not much and time.monotonic() - self._much_at > CALM
        if (ahead := self._store.ahead) and ahead.works and changes.plain and calm:
            rows = changes.rows()
            with self._bodies.changing((), changes.types()):
                _commit(lambda: ahead.put(rows, len(entries)))
            return
        changes.flush(connection := turn.connection(), self._store.dialect)
        with self._bodies.changing(changes.replaced(), changes.types()):
            _commit(connection.commit)


def _commit(commit: Callable[[], None]) -> None:
    try:
        commit()
    except Exception as error:  # noqa: BLE001 - whatever it is, the commit is not known to be done
        raise CommitFailed(type(error).__name__) from None


def _outcomes(entries: list[Entry], desk: Desk, whole: bool) -> list[Any]:
    """Carry out entries in order. whole: end with the first that is refused."""
    results = []
    for entry in entries:
        results.append(_outcome(entry, desk))
        if whole and isinstance(results[-1], FhirError):
            break
    return results


def _outcome(entry: Entry, desk: Desk) -> Any:
    try:
        return entry.act(desk)
    except FhirError as error:
        return error.with_traceback(None)
