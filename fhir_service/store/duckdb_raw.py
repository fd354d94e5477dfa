"""DuckDB's own connection below SQLAlchemy's: parsed statements and appenders, kept for reuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
from sqlalchemy import Connection


def raw_of(connection: Connection) -> duckdb.DuckDBPyConnection:
    """Return the DuckDB connection below a SQLAlchemy one."""
    wrapped: Any = connection.connection.driver_connection
    raw: duckdb.DuckDBPyConnection = wrapped._ConnectionWrapper__c
    return raw


def execute(connection: Connection, sql: str, values: list[Any]) -> duckdb.DuckDBPyConnection:
    """Execute a statement, and keep it parsed with the connection. Only for a small set of different statements."""
    raw, kept = raw_of(connection), connection.info.setdefault("statements", {})
    if sql not in kept:
        (kept[sql],) = raw.extract_statements(sql)
    return raw.execute(kept[sql], values)


@contextmanager
def appender_of(connection: Connection, table: str, columns: tuple[str, ...]) -> Iterator[Any]:
    """Lend the connection's appender of a table. It is kept: making one takes as long as appending some rows."""
    kept = connection.info.setdefault("appenders", {})
    if (table, columns) not in kept:
        kept[table, columns] = raw_of(connection).appender(table, columns=list(columns))
    appender = kept[table, columns]
    try:
        yield appender
    except BaseException:
        # Rows that the appender still holds would be stored with the next ones.
        appender.clear()
        raise
