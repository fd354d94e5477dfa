"""Insert rows while other processes insert at once, on both databases."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, text
from sqlalchemy.dialects import postgresql, sqlite

from pipelines.ledger.access import LedgerAccess

INSERTS: Mapping[str, Callable[..., Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def insert_new(ledger: LedgerAccess, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose keys are new."""
    if rows:
        ledger.execute(INSERTS[ledger.engine.dialect.name](table).on_conflict_do_nothing(), rows)


def is_inserted(ledger: LedgerAccess, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row; return False if its key exists."""
    statement = INSERTS[ledger.engine.dialect.name](table).values(dict(row)).on_conflict_do_nothing()
    # PostgreSQL's driver counts no rows where the database makes a key.
    return ledger.execute(statement.returning(next(iter(table.primary_key)))).first() is not None


def keep_others_out(ledger: LedgerAccess) -> None:
    """Let no other writing transaction end before this one. It takes the lock that all take at their end, so no two
    wait for each other. In a ledger in a file, only one transaction writes anyway.

    Call it before reading rejects or decisions whose state decides what is written, and after writing all other
    tables. A lease only keeps out processes that write records; discarding a reject needs no lease.
    """
    if ledger.engine.dialect.name == "postgresql":
        ledger.execute(text("LOCK TABLE journal IN SHARE ROW EXCLUSIVE MODE"))
