"""Open the ledger's database and make its tables: SQLite (WAL) or any SQLAlchemy URL."""

import logging
import os
import re
import sqlite3
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Dialect, Engine, create_engine, event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL, Connection, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from pipelines.ledger.clock import LedgerClock
from pipelines.ledger.columns import metadata
from pipelines.ledger.migration import bring_to_today
from pipelines.ledger.planner_figures import FIGURES, figures_of, give_figures
from pipelines.ledger.tables import SCHEMA_VERSION, LedgerError, schema_version

# psycopg warns of further errors while a failure is cleaned up, which would be a second line beside our message.
logging.getLogger("psycopg").setLevel(logging.ERROR)

IDLE_MILLISECONDS = 60_000
"""Milliseconds of silence after which a server ends the transaction of a process that was stopped or lost in it. Such
a transaction may hold the lease, and until it ends no other process could take over.
"""
LOST_LINE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 90_000,
}
"""Settings of libpq, in seconds, the last in milliseconds. They let a process notice soon that a server was cut off or
replaced; by itself the system gives up a connection after a quarter of an hour or more.

tcp_user_timeout is longer than `IDLE_MILLISECONDS`, since a server that does not read may be at work.
"""
SQLITE = {
    # The journal is on the disk before each commit. A commit lost in a crash of the machine is replayed from it.
    "synchronous": "NORMAL",
    "foreign_keys": "ON",
    "busy_timeout": "60000",
    # Keys come in any order, so each bundle touches pages all over the index. This cache (16 MB) holds most pages of a
    # few hundred thousand records; at a million records, twice the cache saved nothing.
    "cache_size": "-16000",
}
"""Settings of a connection to SQLite."""
BYTES_A_PAGE = 2048
"""Page size of a new file. A bundle often changes one row of a page, and the whole page is written."""
BYTES_OF_THE_LOG = 64 << 20
"""Size from which SQLite moves its log to the file. A page that many bundles change is moved once for all of them."""
WAIT_SECONDS = 60.0
NO_ANSWER = "its server does not answer, or has ended the connection: once it is there, start the same command again"
SAID_BY_SERVERS = {
    "28000": "its server refuses this user, password or database: see CHARTFERRY_LEDGER",
    "25006": "its server takes no writes just now: start the same command again once it does",
    "53100": "its server's disk is full: make room there, and start the same command again",
    "53200": "its server has no memory or locks left (max_locks_per_transaction): start the same command again later",
    "53300": "its server takes no more connections (max_connections): start the same command again later",
}
"""Messages by the code of a server's error."""
REFUSALS = {
    "53200": re.compile("out of (shared )?memory"),
    "53300": re.compile("too many (clients|connections)|connection slots"),
    "28000": re.compile("authentication failed|does not exist|pg_hba"),
}


CONNECTION_ENDED = ("08", "57P")
"""First characters of a server's codes which say that the connection has ended, or is about to end."""
OTHER_ANSWER = "its server has ended this with the error {}: see its log, and start the same command again"
FAILED_OVER = (
    "the ledger's server was failed over or restored while this command ran, and may lack what it did last: start the"
    " same command again, which finds out"
)
NO_URL = (
    "CHARTFERRY_LEDGER cannot be read as the URL of a database: is everything in the password percent-encoded, and are"
    " several hosts named as ?host=a:5432&host=b:5432?"
)
STANDBY = "the ledger's server is a standby, which takes no writes: start the same command again once one does"
HISTORY = """SELECT CASE WHEN NOT pg_is_in_recovery() THEN
                    system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END
             FROM pg_control_system()"""
"""Selects the name of a server's files and timeline; NULL at a standby. A promoted standby begins a new timeline."""
DURABLE = """SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
LOST_CLIENT = """SELECT set_config('tcp_keepalives_idle', '15', false),
                        set_config('tcp_keepalives_interval', '5', false),
                        set_config('tcp_keepalives_count', '3', false),
                        set_config('tcp_user_timeout', '90s', false)"""
"""Settings like `LOST_LINE`, for the server. Without them, a server waits two hours for a process that was cut off
within a statement, and keeps its locks. A process that takes over waits for these locks.
"""
THERE = {
    "sqlite": "SELECT name FROM sqlite_master",
    "postgresql": "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'i') AND pg_table_is_visible(oid)",
}
"""Selects the names of a database's tables and indexes."""
INDEXES = {str(index.name): index for table in metadata.tables.values() for index in table.indexes}
REPLICATED = "SELECT current_setting('synchronous_standby_names') <> ''"


def open_engine(url: str | Path, clock: LedgerClock | None = None) -> Engine:
    """Return an engine for the ledger at `url` (a SQLAlchemy URL or the path of an SQLite file); make missing tables.

    On SQLite the journal, not the commit, makes an intent survive a crash of the machine. Exceptions never show a
    statement's parameters. clock: takes its time from PostgreSQL. Raises `LedgerError`.
    """
    address = address_of(url)
    if address.get_backend_name() == "sqlite" and address.database:
        _make_private(address.database)
    engine = _engine(address)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "handle_error", _hide_values)
    if engine.dialect.name == "postgresql":
        event.listen(engine, "connect", _OneHistory(clock).begin_session)
    try:
        _create(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        raise LedgerError(f"the ledger {shown_address(address)} cannot be opened: {database_message(error)}") from None
    except LedgerError:
        engine.dispose()
        raise
    return engine


def shown_address(address: URL) -> str:
    """Return the name of a database for messages: a file's path, or a URL without its passwords."""
    if address.get_backend_name() == "sqlite":
        return str(address.database)
    return address.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=True)


def _make_private(file: str) -> None:
    """Make a missing file that only its owner can read. An existing file is not opened: closing it would release the
    locks that this process has on it.
    """
    if not file.startswith((":memory:", "file:")):
        with suppress(OSError):  # the file exists, or SQLite says why it cannot be made
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def address_of(named: str | Path) -> URL:
    """Return the URL of a ledger, given as a URL or path.

    A path is never read as a URL, in which `?` and `%` would name another file. Raises `LedgerError`.
    """
    if isinstance(named, Path) or "://" not in named:
        return URL.create("sqlite", database=str(named))
    try:
        return make_url(named)
    except (ArgumentError, ValueError):  # the causes contain parts of the text, and so perhaps of the password
        raise LedgerError(NO_URL) from None


def database_message(error: SQLAlchemyError) -> str:
    """Return a message for a database error. SQLite's own text is included, since it has no values of rows; of a
    server's error only the class or code is used.
    """
    said = getattr(error, "orig", None)
    if isinstance(error, OperationalError | InternalError) and not isinstance(said, sqlite3.Error):
        code = str(said).rpartition(" ")[2]
        is_no_answer = code == "None" or code.startswith(CONNECTION_ENDED)
        return SAID_BY_SERVERS.get(code) or (NO_ANSWER if is_no_answer else OTHER_ANSWER.format(code))
    if not isinstance(said, sqlite3.Error):
        return type(error).__name__
    if "locked" in str(said):
        return f"{said}: another process writes to it, and has for a minute; try again when that has ended"
    closed = any(words in str(said) for words in ("readonly", "unable to open", "disk I/O"))
    hint = " (it, its -wal and -shm, and their folder: this user has to be able to write, with room on the disk)"
    return f"{said}{hint if closed else ''}"


def history_of(connection: Connection) -> str | None:
    """Return the name of a server's history; None if the ledger is a file."""
    return str(connection.exec_driver_sql(HISTORY).scalar()) if connection.dialect.name == "postgresql" else None


def is_replicated(connection: Connection) -> bool:
    """True if a standby has each commit before the server confirms it, so that a failover loses none."""
    return connection.dialect.name == "postgresql" and bool(connection.exec_driver_sql(REPLICATED).scalar())


def _hide_values(context: ExceptionContext) -> None:
    """Replace a server's error text, which may contain values of a row, by the class and code of the error."""
    code = getattr(context.original_exception, "sqlstate", None) or _code_in(str(context.original_exception))
    for error in (context.original_exception, context.sqlalchemy_exception):
        if error is not None:
            error.args = (f"{type(context.original_exception).__name__} {code}",)


def _code_in(text: str) -> str | None:
    """Return the code of a refused connection, found by words of the text: the driver leaves the code out."""
    return next((code for code, words in REFUSALS.items() if words.search(text)), None)


class _OneHistory:
    """The sessions of one process at a server, which must all have one history. A standby that took the server's place
    may lack commits of this process, so the process must not write to it.
    """

    def __init__(self, clock: LedgerClock | None) -> None:
        self._clock, self._known = clock, ""

    def begin_session(self, raw: Any, _record: object) -> None:
        """Prepare a session for durable commits. Raises `LedgerError` if the server is another one, or a standby."""
        autocommit, raw.autocommit = raw.autocommit, True
        raw.execute(DURABLE)
        raw.execute(LOST_CLIENT)
        [history] = raw.execute(HISTORY).fetchone()
        if self._clock:
            self._clock.begin_session(raw)
        raw.autocommit = autocommit
        if history is None or history != (self._known or history):
            raw.close()
            raise LedgerError(STANDBY if history is None else FAILED_OVER)
        self._known = history


class _SQLite(SQLiteDialect_pysqlite):
    """One SQLite dialect for all files of a process, so that a statement compiled for one file serves all."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


registry.register("sqlite.ledger", __name__, _SQLite.__name__)
_COMPILED: dict[Any, Any] = {}
"""The statements compiled for SQLite: as many as the code has."""


def _engine(address: URL) -> Engine:
    """Return an engine that reuses the last used connection first, since its cache of the file is still valid."""
    if address.get_backend_name() == "sqlite":
        address, options = address.set(drivername="sqlite+ledger"), {"compiled_cache": _COMPILED}
        arguments: dict[str, Any] = {"timeout": 60, "check_same_thread": False}
    else:
        ended, options = {"options": f"-c idle_in_transaction_session_timeout={IDLE_MILLISECONDS}"}, {}
        arguments = {name: value for name, value in (LOST_LINE | ended).items() if name not in address.query}
    settings = {"connect_args": arguments, "execution_options": options}
    return create_engine(address, hide_parameters=True, pool_use_lifo=True, **settings)


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA page_size={BYTES_A_PAGE}")
    _use_log(connection)
    for name, value in SQLITE.items():
        connection.execute(f"PRAGMA {name}={value}")
    [bytes_a_page] = connection.execute("PRAGMA page_size").fetchone()
    connection.execute(f"PRAGMA wal_autocheckpoint={BYTES_OF_THE_LOG // bytes_a_page}")


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch a file to WAL. SQLite refuses one of two processes that do this at once; the refused one tries again."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction. One that writes takes the lock at once, so that it waits here and never fails halfway.

    The option `busy_timeout` shortens the wait. Its connection keeps the shorter wait, and must be disposed of.
    """
    options = connection.get_execution_options()
    writes = options.get("writes", False)
    if writes and "busy_timeout" in options:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={min(options['busy_timeout'], int(SQLITE['busy_timeout']))}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _create(engine: Engine) -> None:
    """Create missing tables and indexes. Take no write lock if nothing is missing, so that a reader waits for no
    writer.
    """
    with engine.connect() as connection:
        if _needed(connection) <= (there := _names(connection)) and _version(connection, there) == SCHEMA_VERSION:
            return
    with engine.execution_options(writes=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7305811)")
        version = _version(connection, _names(connection))
        if version is None:
            for statement in _making(connection.dialect):
                connection.exec_driver_sql(statement)
            connection.execute(schema_version.insert().values(version=SCHEMA_VERSION))
        elif version > SCHEMA_VERSION:
            known = f"schema {version}, this one knows {SCHEMA_VERSION}"
            raise LedgerError(f"the ledger is from a newer version ({known}): use that version of Chartferry")
        elif version < SCHEMA_VERSION:
            bring_to_today(connection)
            connection.execute(schema_version.insert().values(version=SCHEMA_VERSION))
        missing = _needed(connection) - _names(connection)
        for name in sorted(missing & INDEXES.keys()):
            connection.execute(CreateIndex(INDEXES[name]))
        if missing and connection.dialect.name == "sqlite":
            give_figures(connection, _figures(connection.dialect))


@lru_cache(maxsize=2)
def _making(dialect: Dialect) -> list[str]:
    """Return the statements that make the tables of a new ledger."""
    made: list[DDLElement] = []
    for table in metadata.sorted_tables:
        made += [CreateTable(table), *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name)))]
    return [str(each.compile(dialect=dialect)) for each in made]


@lru_cache(maxsize=2)
def _figures(dialect: Dialect) -> list[tuple[str, str, str]]:
    return list(figures_of(_making(dialect)))


def _needed(connection: Connection) -> set[str]:
    """Return the names of all tables and indexes, with the planner's figures in SQLite."""
    return {*metadata.tables, *INDEXES, *([FIGURES] if connection.dialect.name == "sqlite" else ())}


def _names(connection: Connection) -> set[str]:
    """Return the names of the existing tables and indexes."""
    return set(connection.exec_driver_sql(THERE[connection.dialect.name]).scalars())


def _version(connection: Connection, there: set[str]) -> int | None:
    """Return the schema version of a ledger's tables; None if there are none."""
    if schema_version.name not in there:
        return None
    found = connection.execute(schema_version.select()).scalars().all()
    return max(found, default=None)
