"""Carry out entries on a view of the store, and store their changes by one durable commit.

For each commit: collect what the entries ask about, fetch it with a constant number of statements, let the entries act
in order, and add all rows.
"""

import logging
import math
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from datetime import datetime
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.site import Site
from fhir_service.store.bodies import BodyCache
from fhir_service.store.changes import Changes
from fhir_service.store.rows import Sums
from fhir_service.store.store import Store
from fhir_service.store.view import KeptRows, Needs, Questionnaires, View, one_by_one
from fhir_service.writing.contending import BatchOutcome, Contender, InDoubt, Witnessed, contender_of
from fhir_service.writing.entry import CommitContext, Entry

MOST_AHEAD = 200
"""The most entries of a commit that is stored ahead of the tables. More of them cost less if they go there at once."""
MOST_BYTES_AHEAD = 512 << 10
CALM = 0.2
"""For so many seconds after a large commit, small ones go into the tables too."""
PAUSES = (0.05, 0.5)
"""Seconds before each further attempt of work that failed before its commit."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class CommitFailed(Exception):
    """A commit did not succeed: its changes may be stored or not."""


class CommitTimes:
    """The monotonic times of the last commit and of the last large commit."""

    def __init__(self) -> None:
        self._stored = self._much = -math.inf

    def stored(self) -> None:
        self._stored = time.monotonic()

    def failed(self) -> None:
        """Note that the last attempt failed."""
        self._stored = -math.inf

    def idle(self) -> float:
        """Return the seconds since the last commit; infinite if there was none, or the last attempt failed."""
        return time.monotonic() - self._stored

    def are_few(self, entries: Collection[Entry]) -> bool:
        """Note a commit of these entries. Return True if it is small, and no large one came within `CALM` seconds."""
        if len(entries) > MOST_AHEAD or sum(entry.size for entry in entries) > MOST_BYTES_AHEAD:
            self._much = time.monotonic()
            return False
        return time.monotonic() - self._much > CALM


class Commits:
    """Commit to a store, one batch after another. Only `times` and `readers` are for other threads.

    readers: each is done as soon as the tables have been brought up to date once more.
    """

    def __init__(
        self,
        store: Store,
        site: Site,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        bodies: BodyCache,
        committed: Callable[[int], None],
        collided: Callable[[], None],
        witnessed: Witnessed,
    ) -> None:
        """Take the arguments of `Writer`."""
        self._store, self._site, self._clock, self._new_id, self._committed = store, site, clock, new_id, committed
        self._contender = contender_of(store, collided, witnessed)
        self._bodies, self.readers = bodies, SimpleQueue[Future[None]]()
        self._questionnaires = Questionnaires(site)
        self._kept: KeptRows | None = None
        self._seq = store.last_seq()
        self.times = CommitTimes()

    @property
    def ahead(self) -> bool:
        """True if rows are stored that the tables do not have yet."""
        return self._store.ahead is not None and self._store.ahead.waits

    @property
    def owes(self) -> bool:
        """True if the tables do not have all sums of what is stored yet."""
        return self._store.ahead is not None and self._store.ahead.owes

    def next_seq(self) -> int:
        """Return a fresh number."""
        self._seq += 1
        return self._seq

    def close(self) -> None:
        """Give back the connection to a shared store. What is stored ahead of the tables stays stored."""
        if self._store.ahead:
            self._store.ahead.close()
        if self._contender:
            self._contender.close()

    # --- ahead of the tables ---

    def bring_up(self) -> None:
        """Bring what is stored ahead of the tables into them. A failure loses nothing: it is stored already."""
        try:
            self._catch_up(sums=True)
        except Exception as error:  # noqa: BLE001 - it is tried again before each commit to the tables
            self.times.failed()
            log.error("stored writes were not copied into the tables, and are copied later: %s", type(error).__name__)  # noqa: TRY400

    def _catch_up(self, sums: bool = False) -> None:
        # A reader may have joined while the tables were brought up to date: release it even if nothing is ahead now.
        readers = [self.readers.get() for _ in range(self.readers.qsize())]
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
        """Do the database's postponed work. The batch before is stored and answered: a failure cannot harm it."""
        if self._store.ahead and self._store.ahead.full:
            self.bring_up()
        try:
            self._store.dialect.settle(self._store.engine)
        except Exception as error:  # noqa: BLE001 - the thread goes on
            log.error("the store's log was not folded into its file, and is folded later: %s", type(error).__name__)  # noqa: TRY400

    # --- commits ---

    def run(self, function: Callable[[Connection], T], resources: bool, records: Collection[str] | None = None) -> T:
        """Run a function in a transaction of its own. For `resources` and `records` see `Writer.transact`."""
        anything = resources and records is None
        try:
            # Repeat only the beginning of the transaction: the function may have effects outside of it.
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
        """Forget all that was read so far."""
        self._questionnaires, self._kept = Questionnaires(self._site), None

    def carry_out(self, entries: list[Entry], whole: bool) -> list[Any]:
        """Carry out entries and store their changes. Return a result or a FhirError for each.

        whole: store all or none. If one is refused, its FhirError is the last result.

        Raises:
            CommitFailed: the changes may be stored or not. After any other exception they are not stored.
        """
        return self._patiently(lambda: self._carried_out(entries, whole))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do work that stores nothing if it fails. Repeat it after failures that may pass."""
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
        """Return a connection in a transaction that holds the lock of all writers.

        Fresh numbers continue from those of all processes.

        sums: bring all sums into the tables first.
        """
        self._catch_up(sums)
        connection = self._store.engine.connect()
        try:
            # Statements that go past SQLAlchemy begin no transaction, and each would be committed by itself.
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
        # Until the commit has succeeded, nothing that was read may be kept.
        kept, self._kept = self._kept, None
        with ExitStack() as stack:
            # The transaction begins when the batch first reads from the tables or writes to them.
            connection = cache(lambda: stack.enter_context(self._begun()))
            if kept is None or kept.full:
                # Fresh data are read from the tables, which must have all sums by then.
                self._catch_up(sums=True)
                kept = KeptRows.read(connection())
            view = View(partial(one_by_one, self._store.dialect, connection), needs, self._questionnaires, kept)
            changes = Changes(self.next_seq)
            desk = CommitContext(view, changes, self._site, self._clock(), self._new_id)
            results, keep = _outcomes(entries, desk, whole)
            if not keep:
                return results
            if changes:
                self._keep(connection, changes, entries)
                self.times.stored()
                self._committed(len(entries))
        self._kept = kept
        return results

    def _carried_out_beside_others(
        self, contender: Contender, needs: Needs, entries: list[Entry], whole: bool
    ) -> list[Any]:
        def carry_out(view: View, changes: Changes) -> BatchOutcome:
            return _outcomes(entries, CommitContext(view, changes, self._site, self._clock(), self._new_id), whole)

        try:
            results, stored = contender.commit(needs, self._questionnaires, carry_out)
        except InDoubt:
            raise CommitFailed("InDoubt") from None
        if stored:
            self.times.stored()
            self._committed(len(entries))
        return results

    def _keep(self, connection: Callable[[], Connection], changes: Changes, entries: list[Entry]) -> None:
        """Store changes durably: a few new records ahead of the tables, all else in the tables.

        Soon after a large commit, small ones go into the tables too: the next large commit would have to bring them
        there first, and readers would wait for it.
        """
        few = self.times.are_few(entries)
        if (ahead := self._store.ahead) and ahead.works and changes.plain and few:
            rows = changes.rows()
            with self._bodies.changing((), changes.types()):
                self._committing(lambda: ahead.put(rows, len(entries)))
            return
        sums = changes.flush(connection(), self._store.dialect, sums=not ahead)
        with self._bodies.changing(changes.replaced(), changes.types()):
            self._commit(connection(), sums=sums)

    def _commit(self, connection: Connection, resources: bool = True, sums: Sums | None = None) -> None:
        """Commit changes to the tables. For `sums` see `Ahead.passed_by`."""
        ahead = self._store.ahead
        with ahead.passed_by(connection, sums) if ahead and resources else nullcontext():
            self._committing(connection.commit)

    def _committing(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except Exception as error:
            if self._store.dialect.undone(error):
                raise
            # After any other error nobody knows if the commit was carried out.
            raise CommitFailed(type(error).__name__) from None


def _outcomes(entries: list[Entry], desk: CommitContext, whole: bool) -> BatchOutcome:
    """Carry out entries in order. whole: stop at the first that is refused, and keep nothing."""
    results: list[Any] = []
    for entry in entries:
        try:
            results.append(entry.act(desk))
        except FhirError as error:
            results.append(error.with_traceback(None))
            if whole:
                return BatchOutcome(results, keep=False)
    return BatchOutcome(results, keep=True)
