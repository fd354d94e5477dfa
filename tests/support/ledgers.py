"""A home's ledger, lost or put back as it was: the database and its journal."""

import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Dialect, select
from sqlalchemy.dialects import sqlite

from pipelines.home.user import user_name
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import write_states
from pipelines.ledger.rows import Intent

TARGET = "urn:uuid:5f0c7c5e-0000-4000-8000-000000000001"
OF = ("default", "PaymentNotice")
PAID = "2026-02-27T00:00:00.000000Z"
FILES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "journal.ndjson")


def views_of_readers(dialect: Dialect, schema: str) -> Iterator[str]:
    """Yield statements that make `record`, `repeat` and `former`, as readers see them, for one connection.

    schema: that of the ledger's tables.
    """
    for shown in (t.record, t.repeat, t.former):
        query = str(shown.element.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
        for kept in ("record", "version", "stream", "batch", "feed_version"):
            for before in ("FROM", "JOIN"):
                query = query.replace(f"{before} {kept} ", f"{before} {schema}.{kept} ")
        yield f"CREATE TEMP VIEW {shown.name} AS {query}"


@contextmanager
def read_ledger(home: Path, timeout: float = 5) -> Iterator[sqlite3.Connection]:
    """Open the database of a home's ledger, with `record`, `repeat` and `former` as readers see them."""
    with closing(sqlite3.connect(f"file:{home / 'ledger.db'}?mode=ro", uri=True, timeout=timeout)) as ledger:
        for statement in views_of_readers(sqlite.dialect(), "main"):
            ledger.execute(statement)
        yield ledger


def decisions(home: Path) -> list[tuple[str, str, str | None]]:
    """Return the decisions by hand in a ledger: command, subject and reason. Asserts that this user made them."""
    ledger = Ledger.open(home / "ledger.db")
    try:
        assert all(row["user"] == user_name() and row["at"] for row in ledger.decisions())
        return [(row["command"], row["subject"], row["why"]) for row in ledger.decisions()]
    finally:
        ledger.close()


def close_rejects(ledger: Ledger, target: str, keys: Collection[str], batch_id: str) -> None:
    """Close the rejects of these keys, as if a batch had answered them."""
    reject = t.reject.c
    found = ledger.read_of(select(reject.reject_id).where(reject.target == target), reject.source_key, keys)
    write_states(ledger, [("closed", batch_id, target, name) for (name,) in found])


def lose_ledger(home: Path) -> None:
    """Remove the ledger of a home and its journal."""
    shutil.rmtree(home / "journal", ignore_errors=True)
    for name in FILES:
        (home / name).unlink(missing_ok=True)


def lose_tables(home: Path) -> None:
    """Remove the ledger of a home and keep its journal."""
    for name in FILES[:3]:
        (home / name).unlink(missing_ok=True)


def keep_ledger(home: Path) -> Callable[[], None]:
    """Copy ledger and journal. Return a function that puts them back."""
    aside = home.parent / "ledger of before"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for name in FILES:
        if (home / name).exists():
            shutil.copy(home / name, aside / name)
    if (home / "journal").is_dir():
        shutil.copytree(home / "journal", aside / "journal")

    def put_back() -> None:
        lose_ledger(home)
        shutil.copytree(aside, home, dirs_exist_ok=True)

    return put_back


def intent(key: str, line: int = 2, batch: str = "payments-a", content: str = "h1", generation: int = 1) -> Intent:
    return Intent(key, generation, batch, line, content, "f1", "p1", PAID, 1050)


def start(ledger: Ledger, *names: str) -> None:
    """Begin batches, so that their records can be sent."""
    for name in names:
        ledger.start_batch(TARGET, name, feed="payments", source="default", resource_type="PaymentNotice")


def states(ledger: Ledger, *keys: str) -> list[str]:
    known = ledger.known(TARGET, *OF, keys)
    return [known[key].state for key in keys]
