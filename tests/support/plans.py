"""A law of every test: a statement that writes rows of the ledger finds each of them by an index.

One that looked at a whole table for each row would be slow only with many rows, which no test has.
"""

import re
import sqlite3
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from pipelines.ledger.planner_figures import LARGE

WHOLE = re.compile(rf"SCAN ({'|'.join(sorted(LARGE))})\b")
_known: dict[str, list[str]] = {}
"""Statements, each with the steps of its plan that look at a whole table."""


def _rows_are_found_by_an_index(
    connection: Connection, _cursor: object, statement: str, parameters: Any, _context: object, is_of_rows: bool
) -> None:
    """Before a statement for each of some rows: raise AssertionError if it looks at a whole table."""
    if not is_of_rows or connection.dialect.name != "sqlite" or not parameters:
        return
    if statement not in _known:
        database = connection.connection.driver_connection
        assert isinstance(database, sqlite3.Connection)
        plan = database.execute(f"EXPLAIN QUERY PLAN {statement}", parameters[0]).fetchall()
        _known[statement] = [step for *_, step in plan if WHOLE.match(step)]
    assert not _known[statement], f"for each row, {_known[statement]}: {statement}"


def hold_plans() -> None:
    """Hold the law in this process from now on."""
    sa.event.listen(Engine, "before_cursor_execute", _rows_are_found_by_an_index)
