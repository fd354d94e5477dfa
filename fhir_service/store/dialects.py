"""DuckDB as the store of one process, and which database a store's name stands for."""

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import duckdb
from sqlalchemy import URL, Connection, Engine, Table, create_engine
from sqlalchemy.exc import DBAPIError

from fhir_service.store.compiled import NAME as DUCKDB
from fhir_service.store.dialect import Added, Dialect, Row
from fhir_service.store.digests import Digests
from fhir_service.store.tables import digest

log = logging.getLogger(__name__)


class StoreBusy(Exception):
    """Another process has the store's file open."""

    def __init__(self, path: str, pid: int | None) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{path} is open in {holder}; stop it, or use the commands that go through the running service"
        )


HOMES_OWN = "service.duckdb"
"""The name of the store in a home folder."""
_NEVER = "1TB"
"""Of the log from which on a commit works it into the file: `settle` does that, where the disk has room for it.

To fail at it ends the database, as no other failure for want of room does. The log of a killed service is read again at
some 200 MB a second.
"""
_MOST_WRITTEN_ANEW = 1 << 30
"""Bytes of the file that are taken to be written anew, at most, when the log is worked in.

One changed row has the rest of its row group written anew. All of them are rarely changed at once.
"""
_LONG_LOG = 128 << 20
"""Bytes of the log from which on so much of the file is not waited for: what the log has is in memory, too."""
_NO_ROOM = os.strerror(errno.ENOSPC)
_THREADS = 1
"""Threads of one statement.

Several take about a fifth more CPU for small statements, which are most of a service's. For a search through a million
resources one thread took no longer, on a machine of two cores.
"""
_LARGE_LOG = 16 << 20
"""Bytes of the log from which on it is worked into the file between two batches: a tenth of a second's work.

Until it is done nobody writes, nor reads what it has of a table: so it is never much. Per row it costs no more than in
larger parts.
"""
_JOINED_AT_THE_END = 1
"""Row groups of a table that are made by joining smaller ones near each other, when the process ends.

Each time that the log is worked in makes groups of its own. To join them takes most of a second for a full group, so
that it is not done then. It must be done some time: a process may leave groups of a few rows.
"""
_FEW = 4
"""The most rows or keys for a statement that the connection keeps parsed.

Parsing takes half the time of a look-up. A flush of the appender parses and plans a statement with its rows, which pays
from some five rows on.
"""
_STEP = 250
"""Rows that the appender takes over at once."""
_FEW_CHANGES = 2
"""The most rows that are changed by a statement each."""


class DuckDb:
    """DuckDB in a file that this process owns. Rows go in through the appender."""

    shared, epoch, broken = False, "", False

    def __init__(self, path: Path, memory_limit: str) -> None:
        self.path = path
        self._digests: dict[str, Digests] = {}
        self._put_off: set[int] = set()
        # Bytes of the log when it could not be worked in: that is tried again once it has as much more.
        self._failed_at = 0
        self._lacks_room = False
        self._spill = path.parent / f".{path.name}.spill"
        self._config = {
            "memory_limit": memory_limit,
            "temp_directory": str(self._spill),
            "threads": _THREADS,
            "checkpoint_threshold": _NEVER,
            "max_vacuum_tasks": _JOINED_AT_THE_END,
        }

    def open(self, create: bool) -> Engine:
        if not self.path.exists():
            if not create:
                raise FileNotFoundError(f"there is no store at {self.path}")
            self._make_folder()
        engine = self._engine()
        shutil.rmtree(self._spill, ignore_errors=True)
        self.path.chmod(0o600)
        return engine

    def _make_folder(self) -> None:
        """The folder of a home's own store may be missing; any other one is a slip of the pen."""
        folder = self.path.parent
        if self.path.name == HOMES_OWN:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}: make it, or name the store elsewhere")

    def copy(self, target: Path) -> None:
        """Copy the file and its log, which is consistent while nothing writes: call it in the writer's thread."""
        for suffix in ("", ".wal"):
            source = self.path.with_name(self.path.name + suffix)
            if source.exists():
                shutil.copyfile(source, target.with_name(target.name + suffix))
        target.chmod(0o600)

    @staticmethod
    def fold(copy: Path) -> None:
        """Works a copy's log into it: one file is the copy then."""
        with duckdb.connect(str(copy)) as opened:
            opened.execute("CHECKPOINT")

    def _engine(self) -> Engine:
        if "?" in str(self.path):
            raise OSError(f"{self.path} cannot be a store: DuckDB takes a ? for the end of a file's path")
        engine = create_engine(
            URL.create(DUCKDB, database=str(self.path)),  # as a text, `?` and `%` in it would name another file
            connect_args={"config": self._config},
            pool_size=16,
            max_overflow=64,
            # The writer finds the connection that it used, with its appenders.
            pool_use_lifo=True,
            # SQLAlchemy ends what it began; of a connection without a transaction DuckDB refuses a rollback.
            pool_reset_on_return=None,
            hide_parameters=True,
        )
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("SET GLOBAL TimeZone = 'UTC'")
        except DBAPIError as error:
            engine.dispose()
            raise _opening_failed(str(self.path), str(error.orig)) from None
        return engine

    def reader(self, engine: Engine, several: bool) -> Engine:  # noqa: ARG002 - one transaction costs nothing here
        return engine

    def answering(self, engine: Engine, seconds: int) -> Engine:  # noqa: ARG002 - there is no server
        return engine

    def looker(self) -> None:
        """None."""

    def has_store(self, connection: Connection) -> bool:
        # Reflection does not work on this pair of libraries.
        sql = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'store'"
        return bool(connection.exec_driver_sql(sql).scalar())

    def prepare(self, _connection: Connection) -> None:
        """Nothing."""

    def complete(self, _connection: Connection) -> None:
        """Nothing."""

    def complete_resource(self, _connection: Connection, _name: str) -> None:
        """Nothing."""

    def let_processes_contend(self, _connection: Connection) -> None:
        """Nothing: one process owns the file."""

    def recognise(self, _connection: Connection) -> None:
        """Nothing."""

    def lock(self, _connection: Connection, resources: bool) -> None:
        """This process owns the file, and one thread of it writes."""

    def passing(self, error: BaseException) -> bool:
        """True for want of room, and for whatever fails once the database has ended: that is noted too."""
        cause = _cause(error)
        self.broken = self.broken or isinstance(cause, duckdb.FatalException)
        return self.broken or (isinstance(cause, duckdb.Error) and _NO_ROOM in str(cause))

    def undone(self, error: BaseException) -> bool:
        """True for want of room: what the log has of the transaction was taken back."""
        return isinstance(_cause(error), duckdb.TransactionException) and self.passing(error) and not self.broken

    def ending(self, connection: Connection) -> Callable[[], object]:
        return _raw(connection).interrupt

    def ended(self, error: BaseException) -> bool:
        return isinstance(error.orig if isinstance(error, DBAPIError) else error, duckdb.InterruptException)

    def at_once(self, _connection: Connection, _rows: int) -> AbstractContextManager[None]:
        return nullcontext()

    def append(self, connection: Connection, added: Sequence[Added]) -> None:
        for table, rows, columns in added:
            self._append(connection, table, rows, columns)

    def _append(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        if digests := self._digests.get(table.name):
            place = columns.index("digest")
            digests.add(added := [row[place] for row in rows])
            self._put_off.difference_update(added)
        if len(rows) <= _FEW:
            marks = ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))
            sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {marks}"
            _execute(connection, sql, [value for row in rows for value in row])
            return
        with _appender(connection, table.name, tuple(columns)) as appender:
            # No other thread runs while rows are taken over: in steps of some milliseconds.
            for start in range(0, len(rows), _STEP):
                appender.append_rows(rows[start : start + _STEP])
            appender.flush()

    def put_off(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Remember the digests among rows, by table in the order of its columns, that `append` will get later.

        Before the digests of a table are read nothing is: they are read when nothing is put off.
        """
        for name in rows.keys() & self._digests.keys():
            self._put_off.update(row[-1] for row in rows[name])

    def perhaps(self, table: Table, codes: Collection[str]) -> Collection[str]:
        if table.name not in self._digests:
            return codes
        wanted = {digest(code): code for code in codes}
        held = {*self._digests[table.name].among(list(wanted)), *(wanted.keys() & self._put_off)}
        return [wanted[one] for one in held]

    def settle(self, engine: Engine) -> None:
        size = self._size_of(self._log)
        if size < self._failed_at:
            # DuckDB worked it in by itself.
            self._failed_at = 0
        if size < self._failed_at + _LARGE_LOG or not self._has_room(size):
            return
        self._failed_at = size
        with engine.connect() as connection:
            raw = _raw(connection)
            raw.execute("SET GLOBAL max_vacuum_tasks = 0")
            try:
                raw.execute("CHECKPOINT")
            finally:
                raw.execute(f"SET GLOBAL max_vacuum_tasks = {_JOINED_AT_THE_END}")
        self._failed_at = 0

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{self.path.name}.wal")

    @staticmethod
    def _size_of(path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def _has_room(self, log_size: int) -> bool:
        """True if the disk has room to work the log into the file; for a long one, if it likely has."""
        disk = os.statvfs(self.path.parent)
        anew = min(self._size_of(self.path), _MOST_WRITTEN_ANEW) if log_size < _LONG_LOG else 0
        lacked, needed = self._lacks_room, 2 * log_size + anew
        self._lacks_room = disk.f_bavail * disk.f_frsize < needed
        if self._lacks_room and not lacked:
            log.warning("the disk of %s needs %d MB of room: its log grows until then", self.path, needed >> 20)
        return not self._lacks_room

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        if len(rows) <= _FEW_CHANGES:
            key, *others = columns
            sql = f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in others)} WHERE {key} = ?"
            for row in rows:
                _execute(connection, sql, [*row[1:], row[0]])
            return
        types = [_TYPES[type(table.c[name].type).__name__] for name in columns]
        arrays = ", ".join(
            f"unnest(${n}::{kind}[]) AS {name}" for n, (name, kind) in enumerate(zip(columns, types, strict=True), 1)
        )
        key, *others = columns
        sets = ", ".join(f"{name} = new.{name}" for name in others)
        sql = f"UPDATE {table.name} SET {sets} FROM (SELECT {arrays}) AS new WHERE {table.name}.{key} = new.{key}"
        _execute(connection, sql, [list(values) for values in zip(*rows, strict=True)])

    def among(
        self,
        connection: Connection,
        table: Table,
        key: str,
        keys: Collection[Any],
        columns: Sequence[str],
        where: str = "true",
    ) -> list[Row]:
        """Few keys are looked up by the index, many by one scan."""
        if not keys:
            return []
        names = ", ".join(columns)
        raw = _raw(connection)
        if key == "code" and "digest" in table.c:
            return self._digested(raw, table, keys, columns)
        if table.name in _SCANNED and len(keys) > 64:
            sql = f"SELECT {names} FROM {table.name} WHERE {key} IN (SELECT unnest($1)) AND {where}"
            return raw.execute(sql, [list(keys)]).fetchall()
        marks = ", ".join("?" * len(keys))
        sql = f"SELECT {names} FROM {table.name} WHERE {key} IN ({marks}) AND {where}"
        found = _execute(connection, sql, list(keys)) if len(keys) <= _FEW else raw.execute(sql, list(keys))
        return found.fetchall()

    def _digested(
        self, raw: duckdb.DuckDBPyConnection, table: Table, codes: Collection[str], columns: Sequence[str]
    ) -> list[Row]:
        """The rows with these codes: found by their digests, kept where the code itself is asked for."""
        if table.name not in self._digests:
            stored = raw.execute(f"SELECT digest FROM {table.name}").fetchnumpy()["digest"]
            self._digests[table.name] = Digests(stored)
        wanted = set(codes)
        asked = self._digests[table.name].among([digest(code) for code in wanted])
        if not asked:
            return []
        sql = f"SELECT code, {', '.join(columns)} FROM {table.name} WHERE digest IN (SELECT unnest($1::BIGINT[]))"
        return [row[1:] for row in raw.execute(sql, [asked]).fetchall() if row[0] in wanted]


# Tables that stay small beside what is imported: a scan by a set of keys beats a look-up for each.
_SCANNED = {"record", "account", "charge"}
_TYPES = {"Text": "VARCHAR", "BigInteger": "BIGINT", "Integer": "INTEGER", "DateTime": "TIMESTAMPTZ"}


def _cause(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def _raw(connection: Connection) -> duckdb.DuckDBPyConnection:
    """The DuckDB connection below a SQLAlchemy one."""
    wrapped: Any = connection.connection.driver_connection
    raw: duckdb.DuckDBPyConnection = wrapped._ConnectionWrapper__c
    return raw


def _execute(connection: Connection, sql: str, values: list[Any]) -> duckdb.DuckDBPyConnection:
    """Execute a statement that the connection keeps parsed: only of those that there are few of."""
    raw, kept = _raw(connection), connection.info.setdefault("statements", {})
    if sql not in kept:
        (kept[sql],) = raw.extract_statements(sql)
    return raw.execute(kept[sql], values)


@contextmanager
def _appender(connection: Connection, table: str, columns: tuple[str, ...]) -> Iterator[Any]:
    """The connection's appender of a table. It is kept: to make one takes as long as to append some rows."""
    kept = connection.info.setdefault("appenders", {})
    if (table, columns) not in kept:
        kept[table, columns] = _raw(connection).appender(table, columns=list(columns))
    appender = kept[table, columns]
    try:
        yield appender
    except BaseException:
        # What it holds would go in with the next rows.
        appender.clear()
        raise


def _opening_failed(path: str, message: str) -> Exception:
    if "lock on file" in message:
        pid = re.search(r"PID (\d+)", message)
        return StoreBusy(path, int(pid[1]) if pid else None)
    if "Permission denied" in message:
        return OSError(f"{path} cannot be opened: this user may not read and write it")
    if "Out of Memory" in message:
        return OSError(
            f"{path} cannot be opened: what its log has fits neither into memory nor on the disk;"
            " free some room, or give it more memory (FHIR_SERVICE_MEMORY_LIMIT), and start again"
        )
    if (wal := Path(f"{path}.wal")).exists():
        return OSError(
            f"{path} cannot be opened as a DuckDB database: if it was put back from a copy, {wal.name} beside it is"
            " of the file that it replaced; move that away and start again"
        )
    return OSError(f"{path} cannot be opened as a DuckDB database")


def refuse_held(path: Path) -> None:
    """Raise StoreBusy if another process has the file of a store open."""
    try:
        duckdb.connect(str(path), read_only=True).close()
    except duckdb.Error as error:
        if isinstance(found := _opening_failed(str(path), str(error)), StoreBusy):
            raise found from None


def dialect_of(url: str, memory_limit: str) -> Dialect:
    """The dialect of a store: a path is a DuckDB file. Raises ValueError for what is neither that nor PostgreSQL."""
    scheme, found, _ = url.partition("://")
    if not found or scheme == "duckdb":
        return DuckDb(Path(url.removeprefix("duckdb:///")).absolute(), memory_limit)
    if scheme not in ("postgresql", "postgresql+psycopg"):
        raise ValueError(f"no store of this kind is supported: {scheme}")
    try:
        from fhir_service.store.postgresql import PostgreSql
    except ImportError:
        raise ValueError("a PostgreSQL store needs psycopg: install chartferry[postgres]") from None
    return PostgreSql(url)
