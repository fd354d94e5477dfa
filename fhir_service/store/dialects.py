"""DuckDB as the store of one process, and the choice of a database by the name of a store."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import duckdb
from sqlalchemy import URL, Connection, Engine, Table, create_engine
from sqlalchemy.exc import DBAPIError

from fhir_service.paths import exists, is_folder
from fhir_service.store import log_file
from fhir_service.store.dialect import Added, Dialect, Row, RowQuery, cause_of
from fhir_service.store.digests import Digests
from fhir_service.store.disk_errors import is_full
from fhir_service.store.duckdb_dialect import NAME as DUCKDB
from fhir_service.store.duckdb_raw import appender_of, execute, raw_of
from fhir_service.store.log_file import LogFile
from fhir_service.store.opening import opening_failed
from fhir_service.store.schema import STATEMENTS
from fhir_service.store.tables import digest

HOMES_OWN = "service.duckdb"
"""The file name of the store in a home folder."""
_THREADS = 1
"""DuckDB's threads for one statement.

Most statements of a service are small, and take a fifth more CPU with several threads. A search through a million
resources on two cores was not faster with several.
"""
_FEW = 4
"""For so many rows or keys at most, a parsed statement is kept: parsing takes half the time of a look-up.

More rows go through the appender. Its flush parses and plans a statement, which pays from some five rows on.
"""
_STEP = 250
"""The rows that the appender takes by one call."""
_FEW_CHANGES = 2
"""Up to so many rows are changed one by one, more by a single statement."""


class DuckDb(Dialect):
    """A DuckDB file that this process owns. Many rows go in through the appender."""

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
        """Make the missing folder of a home's own store. Refuse any other one: its name is likely misspelt."""
        folder = self.path.parent
        if self.path.name == HOMES_OWN:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not is_folder(folder):
            raise FileNotFoundError(f"there is no folder {folder}: make it, or name the store elsewhere")

    def copy(self, target: Path) -> None:
        """Copy the file and its log. Call it in the writer's thread: the copy is consistent while nothing writes."""
        for suffix in ("", ".wal"):
            source = self.path.with_name(self.path.name + suffix)
            if exists(source):
                shutil.copyfile(source, target.with_name(target.name + suffix))
        target.chmod(0o600)

    @staticmethod
    def fold(copy: Path) -> None:
        """Write the log of a copy into it, so that the copy is one file."""
        with duckdb.connect(str(copy)) as opened:
            opened.execute("CHECKPOINT")

    def _engine(self) -> Engine:
        if "?" in str(self.path):
            raise OSError(f"{self.path} cannot be a store: DuckDB takes a ? for the end of a file's path")
        engine = create_engine(
            URL.create(DUCKDB, database=str(self.path)),  # in a text URL, `?` and `%` have a meaning
            connect_args={"config": self._config},
            pool_size=16,
            max_overflow=64,
            # The writer gets back the connection that it used before, with its appenders.
            pool_use_lifo=True,
            # SQLAlchemy ends its transactions itself; DuckDB refuses a rollback without a transaction.
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

    def has_store(self, connection: Connection) -> bool:
        # DuckDB's list of tables loads each of them, which would take a third of the time to open a store. Asking for a
        # missing table ends the transaction, so that this uses another connection.
        with raw_of(connection).cursor() as other:
            try:
                other.execute("SELECT 1 FROM store LIMIT 0")
            except duckdb.CatalogException:
                return False
        return True

    def make_store(self, connection: Connection) -> None:
        self.make_tables(connection, STATEMENTS)

    def make_tables(self, connection: Connection, names: Collection[str]) -> None:
        for name in names:
            connection.exec_driver_sql(STATEMENTS[name])

    def passing(self, error: BaseException) -> bool:
        """True for a full disk, and for every failure of a broken database. Note if it has broken."""
        cause = cause_of(error)
        self.broken = self.broken or isinstance(cause, duckdb.FatalException)
        return self.broken or (isinstance(cause, duckdb.Error) and is_full(cause))

    def undone(self, error: BaseException) -> bool:
        """True for a full disk: DuckDB has removed the transaction from its log."""
        return isinstance(cause_of(error), duckdb.TransactionException) and self.passing(error) and not self.broken

    def ending(self, connection: Connection) -> Callable[[], object]:
        return raw_of(connection).interrupt

    def ended(self, error: BaseException) -> bool:
        return isinstance(cause_of(error), duckdb.InterruptException | duckdb.OutOfMemoryException)

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
            # The appender holds the interpreter. Steps of some milliseconds let other threads run in between.
            for start in range(0, len(rows), _STEP):
                appender.append_rows(rows[start : start + _STEP])
            appender.flush()

    def put_off(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Remember the digests of rows that `append` will get later. rows: by table, in the order of its columns.

        Tables whose digests were not read yet are skipped: they are read when no rows are put off.
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

    def remove(self, connection: Connection, table: Table, seqs: Sequence[int]) -> None:
        execute(connection, f"DELETE FROM {table.name} WHERE seq IN (SELECT unnest($1::BIGINT[]))", [list(seqs)])

    def among(self, connection: Connection, asked: RowQuery) -> list[Row]:
        """Look up few keys by the index, many by one scan."""
        table, key, keys, columns, where, _ = asked
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
        """Return the rows with these codes. Find them by their digests, then compare the codes."""
        if table.name not in self._digests:
            stored = raw.execute(f"SELECT digest FROM {table.name}").fetchnumpy()["digest"]
            self._digests[table.name] = Digests(stored)
        wanted = set(codes)
        asked = self._digests[table.name].among([digest(code) for code in wanted])
        if not asked:
            return []
        sql = f"SELECT code, {', '.join(columns)} FROM {table.name} WHERE digest IN (SELECT unnest($1::BIGINT[]))"
        return [row[1:] for row in raw.execute(sql, [asked]).fetchall() if row[0] in wanted]


_SCANNED = {"record", "account", "charge"}
"""Tables that stay small: for many keys, one scan is faster than a look-up for each."""
_TYPES = {"Text": "VARCHAR", "BigInteger": "BIGINT", "Integer": "INTEGER", "DateTime": "TIMESTAMPTZ"}


def dialect_of(url: str, memory_limit: str) -> Dialect:
    """Return the dialect of a store. A path names a DuckDB file. Raises ValueError for an unknown kind of URL."""
    scheme, found, _ = url.partition("://")
    if not found or scheme == "duckdb":
        return DuckDb(Path(url.removeprefix("duckdb:///")).absolute(), memory_limit)
    if scheme not in ("postgresql", "postgresql+psycopg"):
        raise ValueError(f"a store of the kind {scheme} is not supported: use a DuckDB file or postgresql+psycopg://")
    try:
        from fhir_service.store.postgresql import PostgreSql
    except ImportError:
        raise ValueError("a PostgreSQL store needs psycopg: install chartferry[postgres]") from None
    return PostgreSql(url)
