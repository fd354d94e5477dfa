"""Write all rows of the ledger's tables as facts. A segment of the journal begins with them if earlier facts are of no
use: for a ledger older than its journal, and after a step of its schema.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection, Executable, Table, select

from pipelines.ledger import tables as t
from pipelines.ledger.columns import metadata
from pipelines.ledger.tables import LedgerError
from pipelines.ledger.verbs import FactRecorder, verb

ROWS_A_FACT = 1_000
NO_FACTS = (t.schema_version, t.lease, t.part, t.position, t.journal)
"""Tables about the database itself, and about the processes that use it now."""


class RowInserter(FactRecorder, Protocol):
    """A ledger that can insert rows."""

    def execute(self, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> Any: ...


def image_of(connection: Connection) -> Iterator[list[list[Any]]]:
    """Yield lists of facts, each for one line of the journal, for all rows of all tables."""
    for table in _with_rows(connection):
        for rows in connection.execute(select(table), execution_options={"yield_per": ROWS_A_FACT}).partitions():
            yield [
                [take_in.__name__, str(table.name), list(map(str, table.columns.keys())), [list(row) for row in rows]]
            ]


def is_empty(connection: Connection) -> bool:
    """True if no table has a row that comes from facts."""
    return not _with_rows(connection)


@verb
def take_in(ledger: RowInserter, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows as they are. A column that the table did not have then stays empty.

    Raises `LedgerError` for a table of an earlier version: its tables can be brought to today's form, its facts
    cannot.
    """
    if table not in metadata.tables:
        raise LedgerError(
            f"the journal begins with a table of an earlier version ({table}): open the home once with the version that"
            " wrote it, which makes the ledger again, then with this one. Nothing was sent"
        )
    ledger.execute(metadata.tables[table].insert(), [dict(zip(columns, row, strict=True)) for row in rows])


def clear(connection: Connection) -> None:
    """Remove all rows that come from facts."""
    for table in reversed(_with_rows(connection)):
        connection.execute(table.delete())


def _with_rows(connection: Connection) -> list[Table]:
    """Return the tables that have rows from facts, found with one statement."""
    tables = [table for table in metadata.sorted_tables if table not in NO_FACTS]
    has = connection.exec_driver_sql("SELECT " + ", ".join(f'EXISTS (SELECT 1 FROM "{each.name}")' for each in tables))
    return [table for table, some in zip(tables, has.one(), strict=True) if some]
