"""Open the ledger's database, and make its tables: SQLite (WAL) or any SQLAlchemy URL."""

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
from pipelines.ledger.tables import SCHEMA_VERSION, LedgerError, schema_version

# It warns of what else goes wrong as a failure is cleared up: a line of its own beside the sentence on the failure.
logging.getLogger("psycopg").setLevel(logging.ERROR)

IDLE_MILLISECONDS = 60_000
"""After which a server ends the transaction of a process that was stopped, or lost, in the middle of it. It may hold
the lease, which nobody else could take over before."""
LOST_LINE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 90_000,
}
"""Settings of libpq, in seconds, and the last in milliseconds: a server that is cut off or was replaced is noticed
soon, and not when the system gives up its connection after a quarter of an hour or more. One that does not read what is
sent may be at work for longer than `IDLE_MILLISECONDS`."""
SQLITE = {
    # The journal is on the disk before a commit; what a commit loses with the machine is replayed from it.
    "synchronous": "NORMAL",
    "foreign_keys": "ON",
    "busy_timeout": "60000",
    # Keys come in any order, so that a bundle touches pages all over the index. Most are kept at hand of a few hundred
    # thousand records (16 MB); beside a million, twice as much saved nothing.
    "cache_size": "-16000",
}
"""Settings of a connection to SQLite."""
BYTES_A_PAGE = 2048
"""Page size of a new file. A bundle often changes one row of a page, and the whole page is written."""
BYTES_OF_THE_LOG = 64 << 20
"""From which on it goes to the file: what is written of a page goes there once for many bundles."""
WAIT_SECONDS = 60.0
NO_ANSWER = "its server does not answer, or has ended the connection: once it is there, start the same command again"
SAID_BY_SERVERS = {
    "28000": "its server refuses this user, password or database: see CHARTFERRY_LEDGER",
    "25006": "its server takes no writes just now: start the same command again once it does",
    "53100": "its server's disk is full: make room there, and start the same command again",
    "53200": "its server has no memory or locks left (max_locks_per_transaction): start the same command again later",
    "53300": "its server takes no more connections (max_connections): start the same command again later",
}
"""Sentences by the code of an error."""
REFUSALS = {
    "53200": re.compile("out of (shared )?memory"),
    "53300": re.compile("too many (clients|connections)|connection slots"),
    "28000": re.compile("authentication failed|does not exist|pg_hba"),
}


CONNECTION_ENDED = ("08", "57P")
"""How a server's codes begin that say the connection has ended, or that it is about to end."""
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
"""Selects the name of a server's files and their timeline, which ends where a standby is promoted; NULL at one."""
DURABLE = """SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
LOST_CLIENT = """SELECT set_config('tcp_keepalives_idle', '15', false),
                        set_config('tcp_keepalives_interval', '5', false),
                        set_config('tcp_keepalives_count', '3', false),
                        set_config('tcp_user_timeout', '90s', false)"""
"""As `LOST_LINE`, for the server: of a process that is cut off in the middle of a statement it would wait for the rest,
with its locks, for two hours. Who takes over waits for these.
"""
REPLICATED = "SELECT current_setting('synchronous_standby_names') <> ''"


def open_engine(url: str | Path, clock: LedgerClock | None = None) -> Engine:
    """An engine over the ledger at `url` (a SQLAlchemy URL, or an SQLite file's path), its tables made when missing.

    On SQLite a commit is on the disk before it returns, since an intent must outlive the machine. Parameters never show
    in an exception. clock: it is told the time of PostgreSQL. Raises `LedgerError`.
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
        raise LedgerError(f"the ledger {shown(address)} cannot be opened: {why(error)}") from None
    except LedgerError:
        engine.dispose()
        raise
    return engine


def shown(address: URL) -> str:
    """Return a database as messages name it: a file's path, or a URL without its passwords."""
    if address.get_backend_name() == "sqlite":
        return str(address.database)
    return address.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=True)


def _make_private(file: str) -> None:
    """Make a file that is not there yet, for its owner only. One that is there is not opened: closing it would give up
    the locks that this process has on it.
    """
    if not file.startswith((":memory:", "file:")):
        with suppress(OSError):  # it is there, or SQLite says why it cannot be
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def address_of(named: str | Path) -> URL:
    """Return the URL of a ledger, given as URL or path. A path is taken as it is: in a URL, `?` and `%` would name
    another file. Raises `LedgerError`.
    """
    if isinstance(named, Path) or "://" not in named:
        return URL.create("sqlite", database=str(named))
    try:
        return make_url(named)
    except (ArgumentError, ValueError):  # the causes hold parts of the text, and so perhaps of the password
        raise LedgerError(NO_URL) from None


def why(error: SQLAlchemyError) -> str:
    """Return a sentence on a database error. SQLite's text tells of the file alone; of a server's error only the class
    is shown.
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
    """Return the name of a server's history; None of a ledger in a file."""
    return str(connection.exec_driver_sql(HISTORY).scalar()) if connection.dialect.name == "postgresql" else None


def is_replicated(connection: Connection) -> bool:
    """True if a standby has each commit before it counts, so that a failover loses none."""
    return connection.dialect.name == "postgresql" and bool(connection.exec_driver_sql(REPLICATED).scalar())


def _hide_values(context: ExceptionContext) -> None:
    """A server names values of the row that it refuses; only its code for the error goes on."""
    code = getattr(context.original_exception, "sqlstate", None) or _code_in(str(context.original_exception))
    for error in (context.original_exception, context.sqlalchemy_exception):
        if error is not None:
            error.args = (f"{type(context.original_exception).__name__} {code}",)


def _code_in(text: str) -> str | None:
    """Return the code that the driver leaves out where a server refuses a connection."""
    return next((code for code, words in REFUSALS.items() if words.search(text)), None)


class _OneHistory:
    """Sessions of one process at a server, which all are of one history: a standby that takes the server's place may
    lack what the process has committed, and must not be written to as if it had that.
    """

    def __init__(self, clock: LedgerClock | None) -> None:
        self._clock, self._known = clock, ""

    def begin_session(self, raw: Any, _record: object) -> None:
        """Raise `LedgerError` for a server that is another by now. Commits are to outlive it."""
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
    """SQLite as a process has it: one dialect for all files, so that what was compiled for one serves the others."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


registry.register("sqlite.ledger", __name__, _SQLite.__name__)
_COMPILED: dict[Any, Any] = {}
"""The statements that were compiled for SQLite, by what they are: as many as the code has."""


def _engine(address: URL) -> Engine:
    """The connection used last is used next: what it holds of the file is still good."""
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
    """Switch a file to its log. SQLite refuses one of two processes that do this at once; that one tries again."""
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
    """A transaction that will write takes the lock at once: it waits for others here, and never fails halfway.

    busy_timeout: an option of one that waits less; its connection waits less from then on, and is to be disposed of.
    """
    options = connection.get_execution_options()
    writes = options.get("writes", False)
    if writes and "busy_timeout" in options:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={min(options['busy_timeout'], int(SQLITE['busy_timeout']))}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _create(engine: Engine) -> None:
    """Create missing tables. Take no write lock if the schema is current, so that a reader waits for no writer."""
    with engine.connect() as connection:
        there = _names(connection)
        if there >= set(metadata.tables) and _version(connection, there) == SCHEMA_VERSION:
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


@lru_cache(maxsize=2)
def _making(dialect: Dialect) -> list[str]:
    """Return the statements that make the tables of a new ledger."""
    made: list[DDLElement] = []
    for table in metadata.sorted_tables:
        made += [CreateTable(table), *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name)))]
    return [str(each.compile(dialect=dialect)) for each in made]


def _names(connection: Connection) -> set[str]:
    """Return the names of the tables that are there."""
    return set(connection.dialect.get_table_names(connection))


def _version(connection: Connection, there: set[str]) -> int | None:
    """The version of a ledger's tables; None where there are none yet."""
    if schema_version.name not in there:
        return None
    found = connection.execute(schema_version.select()).scalars().all()
    return max(found, default=None)
