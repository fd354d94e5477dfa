"""Commit batches to a store to which other processes write too, and repeat those that collide.

Two batches collide if one changes a row that the other has read, or makes a record that the other makes as well. The
second one is then carried out again on fresh data. From its second attempt on, a batch locks the rows that it reads and
may change. In its last attempt it locks all other writers out.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sqlalchemy import Connection, Engine, text

from fhir_service.store.changes import Changes, Witness
from fhir_service.store.dialect import AttemptLocks
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES, HISTORY
from fhir_service.store.view import KeptRows, Needs, Questionnaires, View

if TYPE_CHECKING:
    from fhir_service.store.postgresql import PostgreSql

WAYS = (AttemptLocks(), AttemptLocks(holds=True), AttemptLocks(holds=True), AttemptLocks(alone=True))
"""How each attempt of a batch locks what it reads."""
LOOKS = (0.05, 0.5, 1.0, 2.0)
"""Seconds before each search for a batch whose commit got no answer. A database may be restarting meanwhile."""

Witnessed = Callable[[Sequence[Witness]], None]

log = logging.getLogger(__name__)


class InDoubt(Exception):
    """A commit got no answer, and the database could not be asked if the batch is stored."""


class BatchOutcome(NamedTuple):
    """The results of a batch's entries. keep: store its changes."""

    results: list[Any]
    keep: bool


class Contender:
    """Commit batches to a store that other processes write to."""

    def __init__(
        self, engine: Engine, dialect: "PostgreSql", collided: Callable[[], None], witnessed: Witnessed
    ) -> None:
        """Store the arguments; the first commit connects.

        Args:
            collided: called after each attempt that collided.
            witnessed: called with all versions of a batch before they are stored.
        """
        # Batches send BEGIN and COMMIT together with other statements.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._dialect, self._collided, self._witnessed = dialect, collided, witnessed
        self._kept: Connection | None = None

    def commit(
        self, needs: Needs, parsed: Questionnaires, carry_out: Callable[[View, Changes], BatchOutcome]
    ) -> tuple[list[Any], bool]:
        """Carry out a batch. Return its results, and True if something was stored.

        Args:
            carry_out: called once for each attempt, with fresh data.

        Raises:
            InDoubt: the batch may be stored or not. After any other exception it is not stored.
        """
        for way in WAYS[:-1]:
            try:
                return self._attempt(way, needs, parsed, carry_out)
            except Exception as error:
                if not self._dialect.collided(error):
                    raise
                self._collided()
        return self._attempt(WAYS[-1], needs, parsed, carry_out)

    def _attempt(
        self,
        way: AttemptLocks,
        needs: Needs,
        parsed: Questionnaires,
        carry_out: Callable[[View, Changes], BatchOutcome],
    ) -> tuple[list[Any], bool]:
        with self._begun() as connection:
            turn = self._dialect.enter(connection, way)
            view = View(turn.fetch, needs, parsed, KeptRows())
            changes = Changes(turn.next_seq)
            results, keep = carry_out(view, changes)
            if not (keep and changes):
                return results, False
            witnesses = list(changes.witnesses())
            self._witnessed(witnesses)
            try:
                self._dialect.store(connection, lambda: changes.flush_beside_others(connection, self._dialect))
            except Exception as error:
                if not self._dialect.lost(error) or not witnesses:
                    raise
                log.warning("the database did not answer a commit, looking it up: %s", type(error).__name__)
                connection.invalidate()
                if not self._is_stored(witnesses[0]):
                    raise
        return results, True

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        """Lend a connection for one attempt. It is kept for the next: the pool would ask the database once more."""
        connection, self._kept = self._kept or self._engine.connect(), None
        try:
            yield connection
        except Exception as error:
            if self._dialect.lost(error):
                connection.invalidate()
            raise
        else:
            # A transaction that stored nothing is still open in psycopg, below SQLAlchemy. A rollback would discard
            # the prepared statements; a commit keeps them.
            connection.connection.commit()
            self._kept = connection
        finally:
            if self._kept is None:
                connection.close()

    def close(self) -> None:
        """Give the connection back."""
        if self._kept:
            self._kept.close()

    def _is_stored(self, witness: Witness) -> bool:
        """True if the version is stored.

        The look takes the lock of all writers, and so waits for a commit that is still under way.
        """
        for pause in LOOKS:
            time.sleep(pause)
            try:
                with self._begun() as connection:
                    self._dialect.enter(connection, AttemptLocks(alone=True)).fetch(())
                    return bool(connection.execute(_WITNESS[witness.type], witness._asdict()).scalar())
            except Exception as error:
                if not self._dialect.passing(error):
                    raise
                log.warning("the database was not reached, trying again: %s", type(error).__name__)
        raise InDoubt


def contender_of(store: Store, collided: Callable[[], None], witnessed: Witnessed) -> Contender | None:
    """Return the contender of a store; None if no other process writes to it."""
    if not store.dialect.shared:
        return None
    return Contender(store.engine, cast("PostgreSql", store.dialect), collided, witnessed)


_WITNESS = {
    name: text(
        f"""SELECT EXISTS (SELECT FROM {table.name} WHERE id = :id AND version = :version AND updated_at = :updated_at)
            OR EXISTS (SELECT FROM {HISTORY.name} WHERE reference = :type || '/' || :id AND version = :version
            AND updated_at = :updated_at)"""
    )
    for name, table in BODIES.items()
}
