"""How the ledger is opened, written and read: transactions, statements with `?`, whole tables. No table by itself.

`Ledger` is this with the calls of `batches.py` and of its own; the modules beside it take any.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from sqlalchemy import Connection, Engine

from pipelines.ledger import tables as t
from pipelines.ledger.database import open_engine
from pipelines.ledger.lease import Clock, Holder, Lease, LeaseLost, utc_text
from pipelines.ledger.snapshot import Snapshot
from pipelines.ledger.tables import LedgerError

LOCKS_A_ROW = {"postgresql": " FOR SHARE"}
KEEP_TERM = "INSERT INTO term (text) VALUES (?) ON CONFLICT DO NOTHING"
TERM = "SELECT term_id FROM term WHERE text = ?"
Write = Callable[[str, list[tuple[Any, ...]]], int]


class LedgerAccess:
    """The database of a ledger. Safe to use from several threads and processes; every call is one transaction."""

    def __init__(self, engine: Engine, clock: Clock):
        self.engine = engine
        self._writing = engine.execution_options(writes=True)
        self._clock = clock
        self._placeholder = "?" if engine.dialect.paramstyle == "qmark" else "%s"
        self._terms: dict[str, int] = {}
        self._within = threading.local()

    @classmethod
    def open(cls, url: str | Path, clock: Clock = lambda: datetime.now(UTC)) -> Self:
        """Opens or makes the ledger; `LedgerError` when it is from a newer version or cannot be opened."""
        return cls(open_engine(url), clock)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that writes. What this thread writes within, by calls of the ledger too, is part of it."""
        if outer := getattr(self._within, "connection", None):
            yield outer
            return
        with self._writing.begin() as connection:
            self._within.connection = connection
            try:
                yield connection
            except BaseException:
                self._terms.clear()
                raise
            finally:
                self._within.connection = None

    def terms(self, texts: Iterable[str]) -> Mapping[str, int]:
        """The numbers of texts that many records share; new ones are kept first."""
        wanted = set(texts)
        if new := [(text,) for text in sorted(wanted - self._terms.keys())]:
            with self.transaction() as connection:
                self._many(connection, KEEP_TERM, new)
                term = self._native(TERM)
                self._terms |= {text: connection.exec_driver_sql(term, (text,)).scalar_one() for (text,) in new}
        return {text: self._terms[text] for text in wanted}

    def now(self) -> str:
        return utc_text(self._clock())

    def lease(self, target: str, waiting: Callable[[Holder], None] | None = None, **pace: float) -> Lease:
        """`with ledger.lease(target, waiting) as lease:` the one loader of the target; see `Lease`."""
        return Lease(self.engine, target, self._clock, waiting, **pace)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The ledger as of one moment, however much others write meanwhile."""
        level = {} if self.engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        with self.engine.connect().execution_options(**level) as connection, connection.begin():
            yield Snapshot(connection)

    def tables(self) -> dict[str, pa.Table]:
        """Every table of the ledger as Arrow."""
        with self.snapshot() as snapshot:
            return {name: snapshot.reader(name).read_all() for name in t.readable}

    @contextmanager
    def writing(self, lease: Lease) -> Iterator[Write]:
        """A transaction under a lease, for statements with `?` and their rows. Raises `LeaseLost`."""
        with self.transaction() as connection:
            self._check(connection, lease)
            yield lambda statement, rows: self._many(connection, statement, rows)

    def confirm(self, lease: Lease) -> None:
        """Raises `LeaseLost` when another loader has the target by now."""
        with self.engine.connect() as connection:
            self._check(connection, lease)

    def rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """What a query with `?` finds."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(self._native(query), values)]

    def execute_many(self, connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> int:
        """Execute a statement with `?` for each row; return how many rows it changed."""
        return self._many(connection, statement, rows)

    # -- within

    def _check(self, connection: Connection, lease: Lease) -> None:
        lease.check()
        lock = LOCKS_A_ROW.get(self.engine.dialect.name, "")
        query = self._native(f"SELECT 1 FROM lease WHERE target = ? AND owner = ?{lock}")
        if connection.exec_driver_sql(query, (lease.target, lease.owner)).one_or_none() is None:
            raise LeaseLost(f"another loader took over the target {lease.target}")

    def _native(self, statement: str) -> str:
        return _with_placeholder(statement, self._placeholder)

    def _many(self, connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> int:
        """Rows as plain tuples to the driver: about ten times as fast as dicts through the compiler."""
        return connection.exec_driver_sql(self._native(statement), rows).rowcount if rows else 0

    def _many_exactly(self, connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
        changed = self._many(connection, statement, rows)
        if changed != len(rows):
            raise LedgerError(f"the ledger has {changed} of {len(rows)} records that were to be changed")


@cache
def _with_placeholder(statement: str, placeholder: str) -> str:
    return statement.replace("?", placeholder)
