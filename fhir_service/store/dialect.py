"""The differences between databases: opening, adding many rows, looking up many keys, other writers.

Everything else is SQLAlchemy over the same tables. `dialects.py` has DuckDB, `postgresql.py` PostgreSQL.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Table

Row = tuple[Any, ...]


class Dialect(Protocol):
    """One kind of database."""

    shared: bool
    """True if other processes may write to the same store."""

    def open(self, create: bool) -> Engine:
        """An engine on the database, made when missing. Raises StoreBusy, FileNotFoundError or OSError."""

    def reader(self, engine: Engine, several: bool) -> Engine:
        """Return the engine for reading: for one statement, or for several that see one state of the store."""

    def has_store(self, connection: Connection) -> bool:
        """True if the database holds a store. What follows in the transaction, no other process does at once."""

    def prepare(self, connection: Connection) -> None:
        """Before the tables of a new store are made."""

    def complete(self, connection: Connection) -> None:
        """After the tables of a new store were made."""

    def complete_resource(self, connection: Connection, name: str) -> None:
        """After the tables of one resource were made in an older store."""

    def lock(self, connection: Connection) -> int | None:
        """Make the transaction the only one that writes, to its end; the highest number given to a resource so far.

        None where this process alone writes and need not ask.
        """

    def passing(self, error: BaseException) -> bool:
        """True if a failure may pass: a connection that was lost, a deadlock."""

    def at_once(self, connection: Connection, rows: int) -> AbstractContextManager[None]:
        """Around statements that change so many rows: they may be sent together, as none is asked for its result."""

    def append(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Append rows whose values stand in the order of `columns`, within the connection's transaction."""

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
