"""Open the ledger; run transactions, statements with `?` and reads of whole tables. This module knows no table.

`BatchLedger` adds batches and runs, `Ledger` adds records. Functions of the other modules take any of the three.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, CursorResult, Engine, Executable, Select
from sqlalchemy.exc import SQLAlchemyError

from pipelines.ledger import tables as t
from pipelines.ledger.batch_store import StoredBatches
from pipelines.ledger.clock import LedgerClock, Moments
from pipelines.ledger.database import address_of, database_message, history_of, is_replicated, open_engine
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.journal import Journal, JournalLine
from pipelines.ledger.journal_sync import BesideFile, First, InDatabase, InStep, KnownTables, last_of, nothing_first
from pipelines.ledger.last_journal_line import LastTold
from pipelines.ledger.lease import Clock, HeldRight, utc_text
from pipelines.ledger.tables import LedgerError
from pipelines.ledger.verbs import replay

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.ledger.snapshot import Snapshot

STREAM = "SELECT stream_id FROM stream WHERE target = ? AND source = ? AND resource_type = ?"
NEW_STREAM = "INSERT INTO stream (target, source, resource_type) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
FEED_VERSION = "SELECT feed_no FROM feed_version WHERE feed_hash = ?"
NEW_FEED_VERSION = "INSERT INTO feed_version (feed_hash) VALUES (?) ON CONFLICT DO NOTHING"
BATCH = "SELECT batch_no FROM batch WHERE target = ? AND batch_id = ?"
LAST_LINE = "SELECT coalesce(max(number), 0), (SELECT min(version) FROM schema_version) FROM journal"
Query = Select[*tuple[Any, ...]]
R = TypeVar("R")
JOURNAL = "journal.ndjson"
NOTHING_KNOWN = KnownTables(None, "")
VALUES_A_QUERY, KEYS_A_QUERY = 400, 1_000
LOOK_MILLISECONDS = 2_000
"""Milliseconds that an opening process waits for a writer. After that it takes the tables as they are."""


class LedgerAccess:
    """The database of a ledger. Safe to use from several threads and processes; every call is one transaction.

    clock: gives all times in the ledger, and all times compared with them. of_here: converts a past moment of this
    machine's clock to that clock. stored: the store of batches that are kept outside the home.
    """

    stored: HomeBatches | None = None
    of_here: Callable[[datetime], datetime] = staticmethod(lambda moment: moment)

    def __init__(self, engine: Engine, clock: Clock, in_step: InStep | None = None):
        self.engine = engine
        self._in_step = in_step
        self._writing = engine.execution_options(writes=True)
        self.clock, self.moments, self.told = clock, Moments(clock), LastTold()
        self._placeholder = "?" if engine.dialect.paramstyle == "qmark" else "%s"
        self._numbers: dict[tuple[str, ...], int] = {}
        self._within = threading.local()

    @classmethod
    def open(
        cls,
        url: str | Path,
        clock: Clock | None = None,
        *,
        journal: bool = True,
        anew: bool = False,
        copies: Path | None = None,
        first: First = nothing_first,
    ) -> Self:
        """Open the ledger, or make it from its journal, and apply the journal's lines that it lacks.

        Args:
            clock: replaces the clock of the ledger's server, or of this machine.
            journal: False for a throw-away copy, whose facts are not kept.
            anew: True to begin a new journal from the tables if the journal is gone.
            copies: the folder for copies of the journal, if the ledger is on a server.
            first: is called with the connection before a new journal begins.

        Raises:
            LedgerError: it cannot be opened or is from a newer version, or its journal is damaged, older or gone.
        """
        engine = open_engine(url, own := LedgerClock())
        clock = clock or own
        try:
            in_step = _in_step_of(engine, url, anew, copies, first) if journal else None
            cls(engine.execution_options(busy_timeout=LOOK_MILLISECONDS), clock, in_step)._bring_up_to_date()
            made = cls(engine, clock, in_step)
        except BaseException:
            engine.dispose()
            raise
        made.of_here = own.of_here
        return made

    def close(self) -> None:
        self.engine.dispose()

    def time_here(self, moment: datetime) -> str:
        """Return a past moment of this machine's clock as a time of the ledger."""
        return utc_text(self.of_here(moment))

    def keep_batches(self, folder: Path, place: str) -> None:
        """Keep the home's batches at a store. folder: the home's folder of batches. place: the store's address."""
        self.stored = StoredBatches(folder, place, self.identity)

    def batches_in(self, home: Path) -> HomeBatches:
        """Return the batches of a home that uses this ledger."""
        return self.stored or HomeBatches(home / "batches")

    def identity(self) -> str | None:
        """Return the id that only this ledger and its copies have; None before the ledger's first fact."""
        with self.engine.begin() as connection:
            return self._in_step.identity(connection) if self._in_step else None

    def history(self) -> str | None:
        """Return the name of the server's history; None if the ledger is a file."""
        with self.reading() as connection:
            return history_of(connection)

    def losable_history(self) -> str | None:
        """Return the name of the server's history; None if a failover loses no committed transaction."""
        with self.reading() as connection:
            return None if is_replicated(connection) else history_of(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that writes. All writes of this thread inside the `with` block are part of it."""
        if outer := getattr(self._within, "connection", None):
            yield outer
            return
        within, in_step, told = self._within, self._in_step, None
        try:
            with self._writing.begin() as connection:
                within.connection, within.facts, within.telling = connection, [], False
                try:
                    known = in_step.catch_up(connection, self) if in_step else NOTHING_KNOWN
                    within.at, within.last = self.moments.behind(known.at), known.at
                    yield connection
                    if in_step and within.facts:
                        told = in_step.keep(connection, known.position, within.at, within.facts)
                        self.moments.kept()
                finally:
                    within.connection = within.at = None
            self.told.follow(told)
        except BaseException:  # also if the commit fails: forget the numbers that it did not keep
            self._numbers.clear()
            raise

    # -- the journal

    def tell(self, name: str, arguments: list[Any], act: Callable[[], R]) -> R:
        """Run a verb and keep it as a fact of the transaction. Verbs that it calls add no fact."""
        with self.transaction():
            within = self._within
            if within.telling:
                return act()
            self.moments.check(within.last)
            within.telling = True
            try:
                done = act()
            finally:
                within.telling = False
            within.facts.append([name, *arguments])
            return done

    def replay(self, line: JournalLine) -> None:
        """Run the verbs of a journal line again, at the line's moment. Raises `LedgerError`."""
        within = self._within
        within.at, within.telling = line.at, True
        try:
            for fact in line.facts:
                replay(self, fact)
        finally:
            within.at, within.telling = None, False

    def read_journal(self) -> None:
        """Read the journal of a ledger in a file, whole. Raises `LedgerError` for a line or segment that is damaged."""
        if isinstance(self._in_step, BesideFile):
            with self.transaction():  # so that no other process closes a segment meanwhile
                self._in_step.journal.read_whole()

    def copy_journal(self) -> None:
        """Add new lines of a server's journal to its copies. Raises `OSError`, `LedgerError`."""
        in_step = self._in_step
        if not isinstance(in_step, InDatabase):
            return
        if self.stored:
            self.stored.keep_journal(self._copy_beyond)
            return
        with self.transaction() as connection:
            in_step.copy(connection)

    def take_up_journal(self, home: Path) -> int:
        """Apply the copies' later lines to a server's ledger restored from a backup; return their number.

        Mend also what an earlier version left wrong in the tables.

        Raises `LedgerError`, also if the copies are of another history.
        """
        in_step = self._in_step
        if not isinstance(in_step, InDatabase):
            return 0
        [(last, version)] = self.rows(LAST_LINE, ())
        with self.batches_in(home).journal_beyond(last) as copies:
            if not copies and version == t.SCHEMA_VERSION:
                return 0
            with self.transaction() as connection:
                taken = in_step.take_up(connection, self, copies)
                self._within.at = self.moments.behind(in_step.last_at(connection) or "")
                in_step.mend(connection, self)
                return taken

    def _copy_beyond(self, names: Iterable[str], folder: Path) -> None:
        assert isinstance(self._in_step, InDatabase)  # noqa: S101 - asked before
        with self.transaction() as connection:
            self._in_step.copy_beyond(connection, last_of(names), folder)

    def _bring_up_to_date(self) -> None:
        """Apply the journal's lines that the tables lack. If another process is writing, leave that to it."""
        if self._in_step is None:
            return
        with self.engine.connect() as connection:
            begun, last = self._in_step.is_begun(connection), self._in_step.last_at(connection)
        if last is not None:
            self.moments.follow(last)
            return
        try:
            with self.transaction():
                pass
        except SQLAlchemyError as error:
            if not begun or "locked" not in str(getattr(error, "orig", "")):
                raise LedgerError(
                    f"the ledger cannot be brought up to its journal: {database_message(error)}"
                ) from None
        finally:
            self.engine.dispose()

    # -- numbers that stand for a stream, batch or feed in the rows of records

    def stream(self, target: str, source: str, resource_type: str) -> int:
        """Return the number of a stream; add the stream if it is new."""
        return self._number(STREAM, (target, source, resource_type), NEW_STREAM)

    def feed_version(self, feed_hash: str) -> int:
        """Return the number of a feed's content; add the content if it is new."""
        return self._number(FEED_VERSION, (feed_hash,), NEW_FEED_VERSION)

    def batch_number(self, target: str, batch_id: str) -> int:
        """Return the number of a batch. Raises `LedgerError` if there is no such batch."""
        return self._number(BATCH, (target, batch_id))

    def _number(self, query: str, names: tuple[str, ...], insert: str | None = None) -> int:
        known = (query, *names)
        if known not in self._numbers:
            with self.transaction():
                if insert:
                    self.write(insert, [names])
                found = self.rows(query, names)
                if not found:
                    raise LedgerError(f"the ledger has no batch {names[-1]}")
                self._numbers[known] = int(found[0][0])
        return self._numbers[known]

    def now(self) -> str:
        """Return the moment of this thread's transaction, or the clock's time outside one."""
        return getattr(self._within, "at", None) or utc_text(self.clock())

    @contextmanager
    def snapshot(self) -> Iterator["Snapshot"]:
        """The ledger as of one moment, while others may write. This thread's reads in the `with` block see it too."""
        from pipelines.ledger.snapshot import Snapshot  # imports Arrow, which most commands do not need

        level = {} if self.engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        before = getattr(self._within, "reader", None)
        with self.engine.connect().execution_options(**level) as connection, connection.begin():
            self._within.reader = connection
            try:
                yield Snapshot(connection)
            finally:
                self._within.reader = before

    def tables(self) -> dict[str, "pa.Table"]:
        """Return every table of the ledger as Arrow."""
        with self.snapshot() as snapshot:
            return {name: snapshot.reader(name).read_all() for name in t.readable}

    def confirm(self, lease: HeldRight) -> None:
        """Raise `LeaseLost` if another loader holds the target."""
        with self.engine.connect() as connection:
            lease.confirm(connection)

    # -- reading

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Let this thread's reads share a connection: that of its transaction, or else one of their own.

        In a ledger in a file they see one state, whatever others write meanwhile.
        """
        within = self._within
        if outer := getattr(within, "connection", None) or getattr(within, "reader", None):
            yield outer
            return
        with self.engine.connect() as connection:
            within.reader = connection
            try:
                yield connection
            finally:
                within.reader = None

    def read(self, query: Query, **given: Any) -> list[Any]:
        """Return the rows of a query. given: the values of the query's parameters, by name."""
        with self.reading() as connection:
            return list(connection.execute(query, given))

    def read_of(
        self, query: Query, column: ColumnElement[Any], values: Iterable[Any], at_once: int = VALUES_A_QUERY
    ) -> list[Any]:
        """Return the rows of a query whose column has one of these values. at_once: values per statement."""
        every = list(dict.fromkeys(values))
        parts = (every[start : start + at_once] for start in range(0, len(every), at_once))
        with self.reading():
            return [row for part in parts for row in self.read(query.where(column.in_(part)))]

    def value(self, query: Query) -> Any:
        """Return the first value of a query's first row; None if it has no row."""
        with self.reading() as connection:
            return connection.execute(query).scalar()

    def rows(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Return the rows of a query with `?` placeholders."""
        with self.reading() as connection:
            return list(connection.exec_driver_sql(self._native(query), values))

    def rows_of_keys(self, query: str, values: tuple[Any, ...], keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query with `{keys}` behind its `?` placeholders, `KEYS_A_QUERY` keys per statement."""
        every = list(keys)
        for start in range(0, len(every), KEYS_A_QUERY):
            some = every[start : start + KEYS_A_QUERY]
            yield from self.plain_rows(query.format(keys=", ".join("?" * len(some))), (*values, *some))

    def plain_rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the rows of a query as the driver's own tuples: to wrap a row takes as long as to find it."""
        with self.reading() as connection, connection.exec_driver_sql(self._native(query), values) as found:
            assert found.cursor is not None  # noqa: S101 - a query always has a cursor
            return list(found.cursor.fetchall())

    # -- writing, inside this thread's transaction: a verb always runs in one

    @contextmanager
    def writing(self, lease: HeldRight) -> Iterator[None]:
        """A transaction under a lease. Raises `LeaseLost`."""
        with self.transaction() as connection:
            lease.confirm(connection)
            yield

    def execute(self, statement: Executable, rows: Sequence[Mapping[str, Any]] | None = None) -> CursorResult[Any]:
        """Execute a statement once, or once for each of the rows."""
        connection: Connection = self._within.connection
        return connection.execute(statement, rows)

    def write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute a statement with `?` for each row; return the number of rows that it changed.

        Rows go to the driver as plain tuples: about ten times as fast as dicts through SQLAlchemy's compiler.
        """
        connection: Connection = self._within.connection
        return connection.exec_driver_sql(self._native(statement), list(rows)).rowcount if rows else 0

    def write_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute a statement that changes one record for each row. Raises `LedgerError` if it does not."""
        changed = self.write(statement, rows)
        if changed != len(rows):
            raise LedgerError(f"the ledger has {changed} of {len(rows)} records that were to be changed")

    # -- within

    def _native(self, statement: str) -> str:
        return _with_placeholder(statement, self._placeholder)


def _in_step_of(engine: Engine, url: str | Path, anew: bool, copies: Path | None, first: First) -> InStep:
    if engine.dialect.name != "sqlite":
        return InDatabase(copies, first)
    path = Path(str(address_of(url).database))
    journal = Journal(path.with_name(JOURNAL if path.name == "ledger.db" else f"{path.stem}.{JOURNAL}"))
    return BesideFile(journal, anew, first)


@cache
def _with_placeholder(statement: str, placeholder: str) -> str:
    return statement.replace("?", placeholder)
