"""DuckDB as the store of one process, and which database a store's name stands for."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import duckdb
from sqlalchemy import URL, Connection, Engine, Table, create_engine
from sqlalchemy.exc import DBAPIError

from fhir_service.paths import exists, is_folder
from fhir_service.store import log_file
from fhir_service.store.compiled import NAME as DUCKDB
from fhir_service.store.dialect import Added, Dialect, Row
from fhir_service.store.digests import Digests
from fhir_service.store.log_file import LogFile
from fhir_service.store.opening import opening_failed
from fhir_service.store.raw import appender_of, execute, raw_of
from fhir_service.store.room import is_full
from fhir_service.store.tables import digest

HOMES_OWN = "service.duckdb"
"""The name of the store in a home folder."""
_THREADS = 1
"""Threads of one statement.

Several take about a fifth more CPU for small statements, which are most of a service's. For a search through a million
resources one thread took no longer, on a machine of two cores.
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
        self._log = LogFile(path)
        self._spill = path.parent / f".{path.name}.spill"
        self._config = {
            "memory_limit": memory_limit,
            "temp_directory": str(self._spill),
            "threads": _THREADS,
            "checkpoint_threshold": log_file.NEVER,
            "max_vacuum_tasks": log_file.JOINED_AT_THE_END,
        }

    def open(self, create: bool) -> Engine:
        if not exists(self.path):
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
        elif not is_folder(folder):
            raise FileNotFoundError(f"there is no folder {folder}: make it, or name the store elsewhere")

    def copy(self, target: Path) -> None:
        """Copy the file and its log, which is consistent while nothing writes: call it in the writer's thread."""
        for suffix in ("", ".wal"):
            source = self.path.with_name(self.path.name + suffix)
            if exists(source):
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
            raise opening_failed(str(self.path), str(error.orig)) from None
        return engine

    def reader(self, engine: Engine, several: bool) -> Engine:  # noqa: ARG002 - one transaction costs nothing here
        return engine

    def answering(self, engine: Engine, seconds: int) -> Engine:  # noqa: ARG002 - there is no server
        return engine

    def looker(self) -> None:
        """None."""

    def has_store(self, connection: Connection) -> bool:
        # DuckDB's list of tables loads each of them, which takes a third of opening a store. A transaction that asks
        # for a missing table is lost: it is one of its own.
        with raw_of(connection).cursor() as other:
            try:
                other.execute("SELECT 1 FROM store LIMIT 0")
            except duckdb.CatalogException:
                return False
        return True

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
        return self.broken or (isinstance(cause, duckdb.Error) and is_full(cause))

    def undone(self, error: BaseException) -> bool:
        """True for want of room: what the log has of the transaction was taken back."""
        return isinstance(_cause(error), duckdb.TransactionException) and self.passing(error) and not self.broken

    def ending(self, connection: Connection) -> Callable[[], object]:
        return raw_of(connection).interrupt

    def ended(self, error: BaseException) -> bool:
        return isinstance(_cause(error), duckdb.InterruptException | duckdb.OutOfMemoryException)

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
            execute(connection, sql, [value for row in rows for value in row])
            return
        with appender_of(connection, table.name, tuple(columns)) as appender:
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
        self._log.settle(engine)

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        if len(rows) <= _FEW_CHANGES:
            key, *others = columns
            sql = f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in others)} WHERE {key} = ?"
            for row in rows:
                execute(connection, sql, [*row[1:], row[0]])
            return
        types = [_TYPES[type(table.c[name].type).__name__] for name in columns]
        arrays = ", ".join(
            f"unnest(${n}::{kind}[]) AS {name}" for n, (name, kind) in enumerate(zip(columns, types, strict=True), 1)
        )
        key, *others = columns
        sets = ", ".join(f"{name} = new.{name}" for name in others)
        sql = f"UPDATE {table.name} SET {sets} FROM (SELECT {arrays}) AS new WHERE {table.name}.{key} = new.{key}"
        execute(connection, sql, [list(values) for values in zip(*rows, strict=True)])

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
        raw = raw_of(connection)
        if key == "code" and "digest" in table.c:
            return self._digested(raw, table, keys, columns)
        if table.name in _SCANNED and len(keys) > 64:
            sql = f"SELECT {names} FROM {table.name} WHERE {key} IN (SELECT unnest($1)) AND {where}"
            return raw.execute(sql, [list(keys)]).fetchall()
        marks = ", ".join("?" * len(keys))
        sql = f"SELECT {names} FROM {table.name} WHERE {key} IN ({marks}) AND {where}"
        found = execute(connection, sql, list(keys)) if len(keys) <= _FEW else raw.execute(sql, list(keys))
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
