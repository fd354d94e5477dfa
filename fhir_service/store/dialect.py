"""The differences between databases: opening, adding many rows, looking up many keys, other writers.

All else is SQLAlchemy over the same tables. `dialects.py` is DuckDB, `postgresql.py` is PostgreSQL.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError

Row = tuple[Any, ...]
Added = tuple[Table, Sequence[Row], Sequence[str]]
"""A table, new rows of it, and the columns of their values, in order."""


class RowQuery(NamedTuple):
    """A question for columns of the rows whose `key` is one of `keys`. changing: these rows may be changed."""

    table: Table
    key: str
    keys: Collection[Any]
    columns: Sequence[str]
    where: str = "true"
    changing: bool = False


Fetch = Callable[[Sequence[RowQuery]], list[list[Row]]]
"""Answer several asks, together if the database can."""


class Dialect(Protocol):
    """One kind of database. A method with a body is for databases that need nothing else."""

    shared: bool
    """True if other processes may write to the same store."""
    broken: bool
    """True after the database has failed for good in this process: only a new process can open it."""

    @property
    def epoch(self) -> str:
        """The name of the sequence in which transactions are numbered. A restore begins another one."""

    def open(self, create: bool) -> Engine:
        """Return an engine on the database. create: make a missing one.

        Raises StoreBusy, FileNotFoundError or OSError.
        """

    def reader(self, engine: Engine, several: bool) -> Engine:
        """Return the engine for reading. several: all statements of a connection see one state of the store."""
        return engine

    def answering(self, engine: Engine, seconds: int) -> Engine:
        """Return the engine for the reads of requests. A server ends a statement that takes longer than `seconds`."""
        return engine

    def looker(self) -> Engine | None:
        """Return the engine for look-ups of one statement. Its connections are not tested before use.

        Return None if the engine for reading is as fast.
        """
        return None

    def has_store(self, connection: Connection) -> bool:
        """True if the database holds a store. Other processes wait here until the transaction ends."""

    def make_store(self, connection: Connection) -> None:
        """Make all tables of a new store, and what belongs to them."""

    def make_tables(self, connection: Connection, names: Collection[str]) -> None:
        """Make some tables, which an older store lacks, with their indexes."""

    def let_processes_contend(self, connection: Connection) -> None:
        """Add to an older store what several writing processes need."""
        return

    def recognise(self, connection: Connection) -> None:
        """Note it if the store came here by a restore, from another database."""
        return

    def lock(self, connection: Connection, resources: bool) -> int | None:
        """Lock all other writers out until the transaction ends. Return the last number that was given.

        Return None if only this process writes: it knows the number. resources: False if the transaction changes only
        clients and tokens; it then waits only for others like it.
        """
        return None

    def passing(self, error: BaseException) -> bool:
        """True if a failure may pass, such as a lost connection, a deadlock or a full disk."""

    def undone(self, error: BaseException) -> bool:
        """True if a commit that failed with this error has stored nothing."""
        return False

    def ending(self, connection: Connection) -> Callable[[], object]:
        """Return a function that interrupts the statement of a connection, from any thread.

        It does nothing if the server ends slow statements by itself.
        """
        return lambda: None

    def ended(self, error: BaseException) -> bool:
        """True if a statement was ended because it took too long or too much memory."""

    def at_once(self, connection: Connection) -> AbstractContextManager[Any]:
        """Enter a context for statements whose results nobody reads: they may be sent together."""
        return nullcontext()

    def append(self, connection: Connection, added: Sequence[Added]) -> None:
        """Append rows to tables, within the connection's transaction."""

    def perhaps(self, table: Table, codes: Collection[str]) -> Collection[str]:
        """Return the codes that a table of identifiers may hold, without asking the database."""
        return codes

    def settle(self, engine: Engine) -> None:
        """Do postponed work of the database, if it is time. Called between two batches, after their answers."""
        return

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Change rows by one statement. The first of `columns` is the key; the others are set."""

    def remove(self, connection: Connection, table: Table, seqs: Sequence[int]) -> None:
        """Remove the rows of some resources from a side table."""

    def among(self, connection: Connection, asked: RowQuery) -> list[Row]:
        """Answer a question for rows by one statement."""


def cause_of(error: BaseException) -> BaseException | None:
    """Return the driver's error behind SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) else error


class AttemptLocks(NamedTuple):
    """The locks of one attempt of a batch.

    holds: lock the rows that it may change when they are read. alone: lock all other writers out.
    """

    holds: bool = False
    alone: bool = False
