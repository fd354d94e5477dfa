"""Tell SQLite how many rows a value of an index has, so that it plans for large ledgers from the first row on.

Without figures, SQLite takes each first column of an index for a good choice. Here it often is the target, which all
rows share, so that queries about one file would read all rejects of the target. The figures are of a ledger with a
million rows. They never change, nor does a query's plan.
"""

import sqlite3
from collections.abc import Iterable, Iterator

from sqlalchemy import Connection

LARGE = {"record", "version", "reject", "reject_reason", "resubmission", "sighting", "shared_note"}
FEW = {"record_sending", "record_undone"}
ROWS, ROWS_OF_OTHERS, ROWS_OF_FEW = 1_000_000, 1_000, 100
SHARED_BY_ALL = {"target", "source", "resource_type", "stream_id", "state"}
BATCH = {"batch_id", "batch_no"}
BATCHES = 100
FIGURES = "sqlite_stat1"
"""The table of the figures."""


def give_figures(connection: Connection, figures: Iterable[tuple[str, str, str]]) -> None:
    """Write the figures, and let SQLite read them."""
    connection.exec_driver_sql("ANALYZE sqlite_master")  # makes the table
    connection.exec_driver_sql("DELETE FROM sqlite_stat1")
    connection.exec_driver_sql("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", list(figures))
    connection.exec_driver_sql("ANALYZE sqlite_master")  # reads it


def figures_of(statements: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield table, index and figures of each index that these statements make.

    The figures are the number of rows, and how many of them have one value of the first column, of the first two
    columns, and so on.
    """
    db = sqlite3.connect(":memory:")
    for statement in statements:
        db.execute(statement)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, index, is_unique, *_ in db.execute(f"PRAGMA index_list('{table}')").fetchall():
            columns = [name for _, _, name in db.execute(f"PRAGMA index_info('{index}')")]
            rows = ROWS_OF_FEW if index in FEW else ROWS if table in LARGE else ROWS_OF_OTHERS
            firsts = [_rows_of_a_value(set(columns[: place + 1]), rows) for place in range(len(columns))]
            yield table, index, " ".join(map(str, [rows, *firsts[:-1], 1 if is_unique else firsts[-1]]))
    db.close()


def _rows_of_a_value(columns: set[str], rows: int) -> int:
    if columns <= SHARED_BY_ALL:
        return rows
    return max(rows // BATCHES, 2) if columns <= SHARED_BY_ALL | BATCH else 2
