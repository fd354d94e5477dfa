"""The differences between databases: opening, adding many rows, looking up many keys, other writers.

Everything else is SQLAlchemy over the same tables. `dialects.py` has DuckDB, `postgresql.py` PostgreSQL.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, Engine, Table

Row = tuple[Any, ...]
Added = tuple[Table, Sequence[Row], Sequence[str]]
"""A table, rows for it, and the columns in whose order their values stand."""


class Ask(NamedTuple):
    """Columns of the rows of a table whose `key` is one of `keys`. changing: the asker may change these rows."""

    table: Table
    key: str
    keys: Collection[Any]
    columns: Sequence[str]
    where: str = "true"
    changing: bool = False


Fetch = Callable[[Sequence[Ask]], list[list[Row]]]
"""Answers asks, together where the database can."""


class Dialect(Protocol):
    """One kind of database."""

    shared: bool
    """True if other processes may write to the same store."""
    broken: bool
    """True once the database has ended for this process: it must be opened anew, by another one."""

    @property
    def epoch(self) -> str:
        """The name of the run of numbers in which transactions are counted: another one after a restore."""

    def open(self, create: bool) -> Engine:
        """An engine on the database, made when missing. Raises StoreBusy, FileNotFoundError or OSError."""

    def reader(self, engine: Engine, several: bool) -> Engine:
        """Return the engine for reading: for one statement, or for several that see one state of the store."""

    def answering(self, engine: Engine, seconds: int) -> Engine:
        """Return the engine for what requests read, whose statements the server ends after so many seconds.

        The engine given where there is no server.
        """

    def looker(self) -> Engine | None:
        """Return the engine for look-ups of one statement, whose connections are used as they are found.

        None where the engine for reading is as quick.
        """

    def has_store(self, connection: Connection) -> bool:
        """True if the database holds a store. What follows in the transaction, no other process does at once."""

    def prepare(self, connection: Connection) -> None:
        """Before the tables of a new store are made."""

    def complete(self, connection: Connection) -> None:
        """After the tables of a new store were made."""

    def complete_resource(self, connection: Connection, name: str) -> None:
        """After the tables of one resource were made in an older store."""

    def let_processes_contend(self, connection: Connection) -> None:
        """Make what an older store lacks for several processes to write at once."""

    def recognise(self, connection: Connection) -> None:
        """Note that the store was restored from elsewhere, where it was."""

    def lock(self, connection: Connection, resources: bool) -> int | None:
        """Make the transaction the only one that writes, to its end; the number before those that it may give.

        None where this process alone writes and need not ask. resources: False for one that changes clients and tokens
        alone, which only waits for others that do.
        """

    def passing(self, error: BaseException) -> bool:
        """True if a failure may pass: a connection that was lost, a deadlock, a full disk."""

    def undone(self, error: BaseException) -> bool:
        """True if nothing is stored of a transaction whose commit failed so."""

    def ending(self, connection: Connection) -> Callable[[], object]:
        """Return a function that ends what is under way on a connection, from any thread, unless the server does."""

    def ended(self, error: BaseException) -> bool:
        """True if a statement was ended because it took too long, or too much memory."""

    def at_once(self, connection: Connection, rows: int) -> AbstractContextManager[None]:
        """Around statements that change so many rows: they may be sent together, as none is asked for its result."""

    def append(self, connection: Connection, added: Sequence[Added]) -> None:
        """Append rows to tables, within the connection's transaction."""

    def perhaps(self, table: Table, codes: Collection[str]) -> Collection[str]:
        """Return those of some codes that a table of identifiers may hold, without asking the database."""

    def settle(self, engine: Engine) -> None:
        """Between two batches, after the answers: does what the database has put off, if it is time."""

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Change rows by their key, the first of `columns`; the others are set. One statement."""

    def among(
        self,
        connection: Connection,
        table: Table,
        key: str,
        keys: Collection[Any],
        columns: Sequence[str],
        where: str = "true",
    ) -> list[Row]:
        """The rows whose `key` is one of `keys`, in one statement."""


class Way(NamedTuple):
    """The manner of one attempt of a batch. holds: rows that it may change are locked as they are read.

    alone: nobody else writes meanwhile.
    """

    holds: bool = False
    alone: bool = False
