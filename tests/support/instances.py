"""DuckDB databases in memory that share an instance: a new instance takes 16 ms, and a command opens several.

Each is a separate database in a shared instance. The instance has the same order of rows, one thread (several would
wait for each other on few rows), and no folder to spill to: spilling and memory are tested in separate processes.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Self

import duckdb

MOST = 200
"""The number of databases in one instance. It ends when the last of them is closed."""
APART = ("memory_limit", "temp_directory")
"""Settings that may differ, and then need an instance of their own."""


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
    """Open databases in memory, in place of `open_in_memory`."""

    def __init__(self) -> None:
        self._shared: dict[str, duckdb.DuckDBPyConnection] = {}
        self._numbers: Iterator[int] = count(1)

    def __call__(self, settings: Mapping[str, str | bool | int]) -> duckdb.DuckDBPyConnection:
        shared = {name: value for name, value in settings.items() if name not in APART}
        number, kind = next(self._numbers), repr(sorted(shared.items()))
        if number % MOST == 0:
            self._shared.clear()  # closing them would close databases that are still in use
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
