"""Commits of batches to a store that other processes write to at once: tried again where they collide.

A batch that finds that a row has changed since it was read, or that another one has made what it was to make, is run
again on fresh data. From the second time on, the rows that it may change are locked as they are read, so that batches
that want the same rows take turns at those. Only one that still collides keeps all others away.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sqlalchemy import Connection, Engine, text

from fhir_service.store.changes import Changes, Witness
from fhir_service.store.dialect import Way
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES, HISTORY
from fhir_service.store.view import Kept, Needs, Questionnaires, View

if TYPE_CHECKING:
    from fhir_service.store.postgresql import PostgreSql

WAYS = (Way(), Way(holds=True), Way(holds=True), Way(alone=True))
"""The attempts of a batch."""
LOOKS = (0.05, 0.5, 1.0, 2.0)
"""Seconds before each look for a batch whose commit was not answered. A database that restarts takes some."""

Witnessed = Callable[[Sequence[Witness]], None]

log = logging.getLogger(__name__)


class InDoubt(Exception):
    """A commit got no answer, and the database does not say whether it was carried out."""


class Outcome(NamedTuple):
    """The results of a batch's entries, and whether its changes are to be stored."""

    results: list[Any]
    keep: bool


class Contender:
    """Commits batches beside other processes."""

    def __init__(
        self, engine: Engine, dialect: "PostgreSql", collided: Callable[[], None], witnessed: Witnessed
    ) -> None:
        """Connect nothing yet.

        Args:
            collided: called for each attempt that has to be made again.
            witnessed: called with all versions of a batch before it is stored.
        """
        self._engine, self._dialect, self._collided = dialect.exchanging(engine), dialect, collided
        self._witnessed = witnessed
        self._kept: Connection | None = None

    def commit(
        self, needs: Needs, parsed: Questionnaires, carry_out: Callable[[View, Changes], Outcome]
    ) -> tuple[list[Any], bool]:
        """Carry out a batch; return its results, and whether something was stored.

        Args:
            carry_out: called once for each attempt, with fresh data.

        Raises:
            InDoubt: whether it is stored is not known. After all else, nothing is.
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
        self, way: Way, needs: Needs, parsed: Questionnaires, carry_out: Callable[[View, Changes], Outcome]
    ) -> tuple[list[Any], bool]:
        with self._begun() as connection:
            turn = self._dialect.enter(connection, way)
            view = View(turn.fetch, needs, parsed, Kept())
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
                log.warning("a commit was not answered: %s", type(error).__name__)
                connection.invalidate()
                if not self._is_stored(witnesses[0]):
                    raise
        return results, True

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        """A connection for one attempt. It is kept for the next one: to take it from the pool costs an exchange."""
        connection, self._kept = self._kept or self._engine.connect(), None
        try:
            yield connection
        except Exception as error:
            if self._dialect.lost(error):
                connection.invalidate()
            raise
        else:
            # A transaction that stored nothing is still there, below SQLAlchemy. To roll it back would cost psycopg the
            # statements that it has prepared.
            connection.connection.commit()
            self._kept = connection
        finally:
            if self._kept is None:
                connection.close()

    def close(self) -> None:
        """Let the connection go."""
        if self._kept:
            self._kept.close()

    def _is_stored(self, witness: Witness) -> bool:
        """True if the version is there. Alone: a commit that is still under way holds the lock until it has ended."""
        for pause in LOOKS:
            time.sleep(pause)
            try:
                with self._begun() as connection:
                    self._dialect.enter(connection, Way(alone=True)).fetch(())
                    return bool(connection.execute(_WITNESS[witness.type], witness._asdict()).scalar())
            except Exception as error:
                if not self._dialect.passing(error):
                    raise
                log.warning("the database was not reached, looking again: %s", type(error).__name__)
        raise InDoubt


def contender_of(store: Store, collided: Callable[[], None], witnessed: Witnessed) -> Contender | None:
    """Return the contender of a store that other processes may write to; None where this one writes alone."""
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
