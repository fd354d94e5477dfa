"""A DuckDB in memory: it sorts and joins what is spilled, and is gone with its connection."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def open_in_memory(settings: Mapping[str, str | bool | int]) -> "DuckDBPyConnection":
    """Return a connection to a new database in memory, with these settings of DuckDB."""
    import duckdb  # a helper process that only checks chunks does without it

    return silent(duckdb.connect(":memory:", config=dict(settings)))


def silent(database: "DuckDBPyConnection") -> "DuckDBPyConnection":
    """Let no bars be drawn for queries of some seconds: for a process that was started by `python -c`, as those of
    Dagster's runs are, DuckDB would draw them on its output."""
    return database.execute("SET enable_progress_bar = false")
