"""What differs between the databases: adding many rows, looking up many keys, who holds a file.

Everything else is SQLAlchemy over the same tables.
"""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import duckdb
from sqlalchemy import Connection, Engine, Table, create_engine
from sqlalchemy.exc import DBAPIError

Row = tuple[Any, ...]


class StoreBusy(Exception):
    """Another process has the store's file open."""

    def __init__(self, path: str, pid: int | None) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{path} is open in {holder}; stop it, or use the commands that go through the running service"
        )


class DuckDb:
    """DuckDB in a file that this process owns. Rows go in through the appender."""

    name = "duckdb"

    def __init__(self, path: Path, memory_limit: str) -> None:
        self.path = path
        self.spill = path.parent / f".{path.name}.spill"
        self._config = {"memory_limit": memory_limit, "temp_directory": str(self.spill), "threads": os.cpu_count() or 2}

    def engine(self) -> Engine:
        """An engine on the file. Raises StoreBusy when another process has it, OSError when it is no database."""
        engine = create_engine(
            f"duckdb:///{self.path}",
            connect_args={"config": self._config},
            pool_size=16,
            max_overflow=64,
            hide_parameters=True,
        )
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("SET GLOBAL TimeZone = 'UTC'")
        except DBAPIError as error:
            engine.dispose()
            raise _opening_failed(str(self.path), str(error.orig)) from None
        return engine

    def append(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Appends rows whose values stand in the order of `columns`, within the connection's transaction."""
        appender = _raw(connection).appender(table.name, columns=list(columns))
        appender.append_rows(rows)
        appender.flush()

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Changes rows by their key, the first of `columns`; the others are set. One statement."""
        types = [_TYPES[type(table.c[name].type).__name__] for name in columns]
        arrays = ", ".join(
            f"unnest(${n}::{kind}[]) AS {name}" for n, (name, kind) in enumerate(zip(columns, types, strict=True), 1)
        )
        key, *others = columns
        sets = ", ".join(f"{name} = new.{name}" for name in others)
        _raw(connection).execute(
            f"UPDATE {table.name} SET {sets} FROM (SELECT {arrays}) AS new WHERE {table.name}.{key} = new.{key}",
            [list(values) for values in zip(*rows, strict=True)],
        )

    def among(
        self,
        connection: Connection,
        table: Table,
        key: str,
        keys: Collection[Any],
        columns: Sequence[str],
        where: str = "true",
    ) -> list[Row]:
        """The rows whose `key` is one of `keys`, in one statement: few keys by the index, else by one scan."""
        if not keys:
            return []
        names = ", ".join(columns)
        raw = _raw(connection)
        if table.name in _SCANNED and len(keys) > 64:
            sql = f"SELECT {names} FROM {table.name} WHERE {key} IN (SELECT unnest($1)) AND {where}"
            return raw.execute(sql, [list(keys)]).fetchall()
        marks = ", ".join("?" * len(keys))
        return raw.execute(
            f"SELECT {names} FROM {table.name} WHERE {key} IN ({marks}) AND {where}", list(keys)
        ).fetchall()


# Tables that stay small beside what is imported: a scan by a set of keys beats a look-up for each.
_SCANNED = {"record", "account", "charge"}
_TYPES = {"Text": "VARCHAR", "BigInteger": "BIGINT", "Integer": "INTEGER", "DateTime": "TIMESTAMPTZ"}


def _raw(connection: Connection) -> duckdb.DuckDBPyConnection:
    """The DuckDB connection below a SQLAlchemy one."""
    wrapped: Any = connection.connection.driver_connection
    raw: duckdb.DuckDBPyConnection = wrapped._ConnectionWrapper__c
    return raw


def _opening_failed(path: str, message: str) -> Exception:
    if "lock" in message:
        pid = re.search(r"PID (\d+)", message)
        return StoreBusy(path, int(pid[1]) if pid else None)
    return OSError(f"{path} cannot be opened as a DuckDB database")


Dialect = DuckDb


def dialect_of(url: str, memory_limit: str) -> Dialect:
    """The dialect of a store: a path is a DuckDB file."""
    if "://" in url and not url.startswith("duckdb://"):
        raise ValueError(f"no store of this kind is supported: {url.partition(':')[0]}")
    return DuckDb(Path(url.removeprefix("duckdb:///")).absolute(), memory_limit)
