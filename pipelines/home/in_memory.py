"""A DuckDB in memory: it sorts and joins what is spilled, and is gone with its connection."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def open_in_memory(settings: Mapping[str, str | bool | int]) -> "DuckDBPyConnection":
    """Return a connection to a new database in memory, with these settings of DuckDB."""
    import duckdb  # a helper process that only checks chunks does without it

    return duckdb.connect(":memory:", config=dict(settings))
