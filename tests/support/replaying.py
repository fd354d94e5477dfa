"""The law of the journal: replayed into an empty database it gives the same tables, row for row."""

import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from pipelines.ledger import database
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
def empty_ledger() -> bytes:
    """A ledger's file without a row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_engine(path).dispose()
        return path.read_bytes()


def _put(content: bytes, path: Path) -> None:
    """Make a file whole at once, or fail where one is by then."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        new.write_bytes(content)
        os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def new_ledgers_are_copies() -> Iterator[None]:
    """Within, a ledger in a new file begins as a copy of one without a row: to make its tables takes longer."""
    content, make = empty_ledger(), database._create

    def copied(engine: Engine) -> None:
        if engine.dialect.name == "sqlite" and (name := engine.url.database) and not Path(name).exists():
            with suppress(OSError):
                _put(content, Path(name))
        make(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_create", copied)
        yield


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
        (Path(folder) / path.name).write_bytes(empty_ledger())
        with closing(Ledger.open(Path(folder) / path.name)) as again:
            wanted, found = rows_of(ledger), rows_of(again)
            for name, rows in wanted.items():
                assert rows - found[name] == found[name] - rows == Counter(), f"table {name} of {path.name}"
