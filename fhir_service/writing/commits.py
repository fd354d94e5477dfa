"""Commits: entries are carried out on a view of the store, and what they change is stored by one durable commit.

For each commit it collects what the entries ask about, fetches it with a constant number of statements, lets the
entries act in order, and adds all rows.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import closing, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.site import Site
from fhir_service.store.bodies import Bodies
from fhir_service.store.changes import Changes
from fhir_service.store.rows import Sums
from fhir_service.store.store import Store
from fhir_service.store.view import Kept, Needs, Questionnaires, View, one_by_one
from fhir_service.writing.contending import Contender, InDoubt, Outcome, Witnessed, contender_of
from fhir_service.writing.entry import Desk, Entry

MOST_AHEAD = 200
"""Entries of a commit that is stored ahead of the tables. To write more to the tables at once costs less."""
MOST_BYTES_AHEAD = 512 << 10
CALM = 0.2
"""Seconds after a commit of many entries in which small ones go into the tables too."""
# Seconds before each further attempt at what failed before its commit.
PAUSES = (0.05, 0.5)

T = TypeVar("T")
log = logging.getLogger(__name__)


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


class Readers:
    """Threads that wait until the tables have all that was stored before."""

    def __init__(self) -> None:
        self._waiting: list[Future[None]] = []
        self._lock = threading.Lock()

    def join(self) -> "Future[None]":
        """Return what is done when the tables were caught up, once more from now on."""
        reader: Future[None] = Future()
        with self._lock:
            self._waiting.append(reader)
        return reader

    def take(self) -> "list[Future[None]]":
        """Return those who have joined since."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken


class _Lately:
    """When something was stored, and when it was much: monotonic seconds."""

    def __init__(self) -> None:
        self._stored = self._much = -math.inf

    def stored(self) -> None:
        self._stored = time.monotonic()

    def failed(self) -> None:
        self._stored = -math.inf

    def idle(self) -> float:
        return time.monotonic() - self._stored

    def are_few(self, entries: Collection[Entry]) -> bool:
        """Note a commit of these; return True if it is small, and none that was not came just before."""
        if len(entries) > MOST_AHEAD or sum(entry.size for entry in entries) > MOST_BYTES_AHEAD:
            self._much = time.monotonic()
            return False
        return time.monotonic() - self._much > CALM


class Commits:
    """Commits to a store, one after another. All but `idle` is for the writer's thread alone."""

    def __init__(
        self,
        store: Store,
        site: Site,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        bodies: Bodies,
        committed: Callable[[int], None],
        collided: Callable[[], None],
        witnessed: Witnessed,
    ) -> None:
        """Args are as of `Writer`."""
        self._store, self._site, self._clock, self._new_id, self._committed = store, site, clock, new_id, committed
        self._contender = contender_of(store, collided, witnessed)
        self._bodies, self._readers = bodies, Readers()
        self._questionnaires = Questionnaires(site)
        self._kept: Kept | None = None
        self._seq = store.last_seq()
        self._lately = _Lately()

    @property
    def readers(self) -> Readers:
        """The readers that are let go as soon as the tables have caught up."""
        return self._readers

    @property
    def ahead(self) -> bool:
        """True if something is stored that the tables lack."""
        return self._store.ahead is not None and self._store.ahead.waits

    @property
    def owes(self) -> bool:
        """True if the tables lack sums of what is stored."""
        return self._store.ahead is not None and self._store.ahead.owes

    def next_seq(self, count: int = 1) -> int:
        """The first of `count` fresh numbers."""
        first = self._seq + 1
        self._seq += count
        return first

    def idle(self) -> float:
        """Return the seconds since something was stored; infinite if nothing was, or the last attempt failed."""
        return self._lately.idle()

    def failed(self) -> None:
        """Note that the last attempt failed."""
        self._lately.failed()

    def close(self) -> None:
        """Let the connection to a shared store go. What is ahead of the tables stays where it is stored."""
        if self._store.ahead:
            self._store.ahead.close()
        if self._contender:
            self._contender.close()

    # --- ahead of the tables ---

    def bring_up(self) -> None:
        """Bring into the tables what is ahead of them. It is stored: a failure changes nothing for who was answered."""
        try:
            self._catch_up(sums=True)
        except Exception as error:  # noqa: BLE001 - it is tried again before each commit to the tables
            self.failed()
            log.error("what is stored was not brought into the tables: %s", type(error).__name__)  # noqa: TRY400

    def _catch_up(self, sums: bool = False) -> None:
        # A reader may have come while the tables were caught up: it is let go even where nothing is ahead any more.
        readers = self._readers.take()
        try:
            if self._store.ahead and (self.ahead or (sums and self.owes)):
                self._store.ahead.catch_up(self._store.engine)
        except BaseException as error:
            for reader in readers:
                reader.set_exception(error)
            raise
        for reader in readers:
            reader.set_result(None)

    def settle(self) -> None:
        """Do what the database has put off. The batch is stored and answered: a failure here changes nothing for it."""
        if self._store.ahead and self._store.ahead.full:
            self.bring_up()
        try:
            self._store.dialect.settle(self._store.engine)
        except Exception as error:  # noqa: BLE001 - the thread goes on
            log.error("the store was not settled: %s", type(error).__name__)  # noqa: TRY400

    # --- commits ---

    def run(self, function: Callable[[Connection], T], resources: bool, records: Collection[str] | None = None) -> T:
        """Run a function in a transaction of its own. resources, records: as of `Writer.transact`."""
        anything = resources and records is None
        try:
            # Only the beginning is tried again: the function may keep what it met.
            with self._patiently(lambda: self._begun(resources, sums=True)) as connection:
                value = function(connection)
                with self._bodies.changing_all() if anything else nullcontext():
                    self._commit(connection, resources)
        except CommitFailed:
            self._forget()
            raise
        if anything:
            self._forget()
        elif records and self._kept:
            self._kept.forget(records)
        return value

    def _forget(self) -> None:
        """Keep nothing of what was read so far."""
        self._questionnaires, self._kept = Questionnaires(self._site), None

    def carry_out(self, entries: list[Entry], whole: bool) -> list[Any]:
        """Carry out entries and store what they change. Return a result or FhirError for each.

        whole: store all or none. Where one is refused, its FhirError is the last result.

        Raises:
            CommitFailed: whether they are stored is not known. After all else, nothing is.
        """
        return self._patiently(lambda: self._carried_out(entries, whole))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do what stores nothing when it fails, and again after failures that may pass."""
        for pause in PAUSES:
            try:
                return work()
            except Exception as error:
                if not self._store.dialect.passing(error):
                    raise
                log.warning("the database failed, trying again: %s", type(error).__name__)
            time.sleep(pause)
        return work()

    def _begun(self, resources: bool = True, sums: bool = False) -> Connection:
        """A connection in a transaction that alone may write; numbers follow those given by any process.

        sums: whether the tables must have all sums.
        """
        self._catch_up(sums)
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

    def _carried_out(self, entries: list[Entry], whole: bool) -> list[Any]:
        needs = Needs()
        for entry in entries:
            entry.ask(needs)
        if self._contender:
            return self._carried_out_beside_others(self._contender, needs, entries, whole)
        # Only what was committed may be kept.
        kept, self._kept = self._kept, None
        with closing(_Turn(self._begun)) as turn:
            if kept is None or kept.full:
                # Only of what is kept are there sums that the tables lack.
                self._catch_up(sums=True)
                kept = Kept.read(turn.connection())
            view = View(partial(one_by_one, self._store.dialect, turn.connection), needs, self._questionnaires, kept)
            changes = Changes(self.next_seq)
            desk = Desk(view, changes, self._site, self._clock(), self._new_id)
            results = _outcomes(entries, desk, whole)
            if whole and any(isinstance(result, FhirError) for result in results[-1:]):
                return results
            if changes:
                self._keep(turn, changes, entries)
                self._lately.stored()
                self._committed(len(entries))
        self._kept = kept
        return results

    def _carried_out_beside_others(
        self, contender: Contender, needs: Needs, entries: list[Entry], whole: bool
    ) -> list[Any]:
        def carry_out(view: View, changes: Changes) -> Outcome:
            results = _outcomes(entries, Desk(view, changes, self._site, self._clock(), self._new_id), whole)
            return Outcome(results, not (whole and any(isinstance(result, FhirError) for result in results[-1:])))

        try:
            results, stored = contender.commit(needs, self._questionnaires, carry_out)
        except InDoubt:
            raise CommitFailed("InDoubt") from None
        if stored:
            self._lately.stored()
            self._committed(len(entries))
        return results

    def _keep(self, turn: _Turn, changes: Changes, entries: list[Entry]) -> None:
        """Store changes durably: a few that only add are stored ahead of the tables, unless much is stored just now.

        The commits of what is much bring the rest into the tables. Readers would wait for them.
        """
        few = self._lately.are_few(entries)
        if (ahead := self._store.ahead) and ahead.works and changes.plain and few:
            rows = changes.rows()
            with self._bodies.changing((), changes.types()):
                self._committing(lambda: ahead.put(rows, len(entries)))
            return
        sums = changes.flush(connection := turn.connection(), self._store.dialect, sums=not ahead)
        with self._bodies.changing(changes.replaced(), changes.types()):
            self._commit(connection, sums=sums)

    def _commit(self, connection: Connection, resources: bool = True, sums: Sums | None = None) -> None:
        """Commit what goes straight into the tables. sums: as of `Ahead.passed_by`."""
        ahead = self._store.ahead
        with ahead.passed_by(connection, sums) if ahead and resources else nullcontext():
            self._committing(connection.commit)

    def _committing(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except Exception as error:
            if self._store.dialect.undone(error):
                raise
            # Whatever else it is, the commit is not known to be done.
            raise CommitFailed(type(error).__name__) from None


def _outcomes(entries: list[Entry], desk: Desk, whole: bool) -> list[Any]:
    """Carry out entries in order. whole: end with the first that is refused."""
    results = []
    for entry in entries:
        try:
            results.append(entry.act(desk))
        except FhirError as error:
            results.append(error.with_traceback(None))
            if whole:
                break
    return results
