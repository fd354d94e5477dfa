"""The law of the journal: replayed into an empty database it gives the same tables, row for row."""

import shutil
import tempfile
from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.columns import metadata
from pipelines.ledger.database import open_engine
from pipelines.ledger.image import NO_FACTS
from pipelines.ledger.in_step import BesideFile
from pipelines.ledger.journal import Journal
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError

APART = {table.name for table in NO_FACTS}
"""Tables that are no facts."""


def journal_of(ledger: Ledger) -> Journal:
    """The journal beside a ledger in a file."""
    in_step = ledger._in_step
    assert isinstance(in_step, BesideFile)
    return in_step.journal


def rows_of(ledger: Ledger) -> dict[str, Counter[tuple[object, ...]]]:
    """Every table of a ledger as a bag of rows."""
    with ledger.engine.connect() as connection:
        return {
            name: Counter(tuple(row) for row in connection.exec_driver_sql(query))
            for name, query in _queries(ledger.engine.dialect.name).items()
        }


@cache
def _queries(_: str) -> dict[str, str]:
    """What reads each table, for a dialect: every ledger has an engine of its own, which would compile it anew."""
    tables = {**metadata.tables, "record": t.record, "repeat": t.repeat}
    return {name: str(select(table)) for name, table in tables.items() if name not in APART}


@cache
def _empty() -> bytes:
    """A ledger's file without a row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_engine(path).dispose()
        return path.read_bytes()


def assert_replay_is_equal(path: Path) -> None:
    """Replay the journal beside a ledger, and compare every table. One that cannot be opened was left so by a test."""
    try:
        ledger = Ledger.open(path)
    except LedgerError:
        return
    with closing(ledger), tempfile.TemporaryDirectory() as folder:
        journal = journal_of(ledger).path
        shutil.copy(journal, Path(folder) / journal.name)
        if (closed := journal.with_suffix("")).is_dir():
            shutil.copytree(closed, Path(folder) / closed.name)
        (Path(folder) / path.name).write_bytes(_empty())
        with closing(Ledger.open(Path(folder) / path.name)) as again:
            wanted, found = rows_of(ledger), rows_of(again)
            for name, rows in wanted.items():
                assert rows - found[name] == found[name] - rows == Counter(), f"table {name} of {path.name}"
