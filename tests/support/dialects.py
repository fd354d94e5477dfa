"""Databases as they come, but for what their engines compiled: they share it, since tests open thousands."""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from fhir_service.store.duckdb_dialect import Compiled

COMPILED: dict[Any, Any] = {}
"""Compiled statements. A part of their keys is the dialect, so all of one class are equal."""


class _Shared:
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=COMPILED)


class SharedSqlite(_Shared, SQLiteDialect_pysqlite):
    """The dialect of every engine over a ledger in a file in the process of tests."""

    supports_statement_cache = True


class SharedDuckDb(_Shared, Compiled):
    """That of every engine over a store in a file."""

    supports_statement_cache = True


class SharedPostgresql(_Shared, PGDialect_psycopg):
    """That of every engine over a server of PostgreSQL; all of them are alike."""

    supports_statement_cache = True


def share_compiled() -> None:
    """Let engines that this process makes from now on share what they compile: a sixth of a command over a ledger."""
    for name, dialect in {
        "sqlite": SharedSqlite,
        "duckdb.compiled": SharedDuckDb,
        "postgresql.psycopg": SharedPostgresql,
    }.items():
        registry.register(name, __name__, dialect.__name__)
