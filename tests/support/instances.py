"""Databases of DuckDB in memory, cheaper than they come: a new instance takes 16 ms, and a command opens several.

Each is a database of its own in an instance that many share. It has their order, one thread, since several wait for
each other where rows are few, and no folder to spill to: what is spilled, and how much memory is taken, is tested in
processes of their own.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Self

import duckdb

MOST = 200
"""Databases in one instance, which is gone once the last of them is closed."""
APART = ("memory_limit", "temp_directory")
"""Settings that would not be the same for all."""


class Bench:
    """A connection to a database of an instance: its cursors begin in that database, not in the instance's first."""

    def __init__(self, own: duckdb.DuckDBPyConnection) -> None:
        self._own = own
        [(self._name,)] = own.execute("SELECT current_database()").fetchall()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._own.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._own.cursor().execute(f"USE {self._name}")


class Instances:
    """Opens databases in memory, as `open_in_memory` does."""

    def __init__(self) -> None:
        self._shared: dict[str, duckdb.DuckDBPyConnection] = {}
        self._numbers: Iterator[int] = count(1)

    def __call__(self, settings: Mapping[str, str | bool | int]) -> duckdb.DuckDBPyConnection:
        shared = {name: value for name, value in settings.items() if name not in APART}
        number, kind = next(self._numbers), repr(sorted(shared.items()))
        if number % MOST == 0:
            self._shared.clear()  # to close them would close what is still open in them
        if kind not in self._shared:
            self._shared[kind] = duckdb.connect(":memory:", config={**shared, "threads": 1})
        own = self._shared[kind].cursor()
        own.execute(f"ATTACH ':memory:' AS own_{number}")
        own.execute(f"USE own_{number}")
        return own

    def close(self) -> None:
        for each in self._shared.values():
            each.close()
        self._shared.clear()
