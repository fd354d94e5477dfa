"""Insert rows beside other processes that insert at once, on both databases."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, text
from sqlalchemy.dialects import postgresql, sqlite

from pipelines.ledger.access import LedgerAccess

INSERTS: Mapping[str, Callable[..., Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def insert_new(ledger: LedgerAccess, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose keys are not there."""
    if rows:
        ledger.execute(INSERTS[ledger.engine.dialect.name](table).on_conflict_do_nothing(), rows)


def is_inserted(ledger: LedgerAccess, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row; return False if there is one of its key."""
    statement = INSERTS[ledger.engine.dialect.name](table).values(dict(row)).on_conflict_do_nothing()
    # PostgreSQL's driver counts no rows where the database makes a key.
    return ledger.execute(statement.returning(next(iter(table.primary_key)))).first() is not None


def keep_others_out(ledger: LedgerAccess) -> None:
    """Let nobody else end a transaction that writes before this one: by the lock which all take at their end, so that
    no two wait for each other. In a ledger in a file nobody has begun one.

    Who reads rejects or decisions to write what follows calls it before that, and after all that is written of other
    tables: a lease keeps out those who write records, and none who discards a reject.
    """
    if ledger.engine.dialect.name == "postgresql":
        ledger.execute(text("LOCK TABLE journal IN SHARE ROW EXCLUSIVE MODE"))
