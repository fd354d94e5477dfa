"""SQLite as it comes, but for what its engines compiled: they share it, since tests open thousands of ledgers."""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

COMPILED: dict[Any, Any] = {}
"""Compiled statements. A part of their keys is the dialect, so all of this class are equal."""


class SharedSqlite(SQLiteDialect_pysqlite):
    """The dialect of every engine over SQLite in the process of tests."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=COMPILED)


def share_compiled() -> None:
    """Let engines that this process makes from now on share what they compile: a sixth of a command over a ledger."""
    registry.register("sqlite", __name__, SharedSqlite.__name__)
