"""The laws of the journal: replayed into an empty database it gives the ledger's tables, row for row, and its times
never decrease.
"""

import os
import re
import shutil
import sqlite3
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.pool import StaticPool

from pipelines.importing.clock import CLOCK_IS_RIGHT
from pipelines.ledger import database
from pipelines.ledger import tables as t
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.all_rows import NO_FACTS
from pipelines.ledger.batch_counts import rows_left
from pipelines.ledger.columns import metadata
from pipelines.ledger.database import open_engine
from pipelines.ledger.journal import Journal
from pipelines.ledger.journal_sync import BesideFile
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import changes
from pipelines.ledger.states import OUTCOMES
from pipelines.ledger.tables import LedgerError
from pipelines.ledger.verbs import VERBS

APART = {table.name for table in NO_FACTS}
"""Tables that hold no facts."""
STATES = ("state", "fate", "stage", "command", "kind")
"""Columns with few different values; a verb of the journal writes each value."""
TIMES = re.compile(r'^{"n":[0-9]+,"at":"([^"]+)".*\n', re.MULTILINE)
"""The times of whole lines. The journal is split at decisions that the clock is right: times may go back there."""
replayed = Counter[str]()
"""The number of journals that this process has replayed, by verb and by kind of row in their ledgers."""


def journal_of(ledger: Ledger) -> Journal:
    """Return the journal of a ledger in a file."""
    in_step = ledger._in_step
    assert isinstance(in_step, BesideFile)
    return in_step.journal


def rows_of(ledger: Ledger) -> dict[str, Counter[tuple[object, ...]]]:
    """Return every table of a ledger as a multiset of rows, with the values of the driver."""
    with ledger.engine.begin() as connection:
        driver: Any = connection.connection.driver_connection
        queries = _queries(ledger.engine.dialect.name)
        return {name: Counter(driver.execute(query)) for name, query in queries.items()}


@cache
def _queries(_: str) -> dict[str, str]:
    """Return the compiled query of each table. Every ledger has its own engine, which would compile it again."""
    tables = {**metadata.tables, "record": t.record, "repeat": t.repeat}
    return {name: str(select(table)) for name, table in tables.items() if name not in APART}


@cache
def empty_ledger() -> bytes:
    """Return the file of a ledger without rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_engine(path).dispose()
        return path.read_bytes()


def _put(content: bytes, path: Path) -> None:
    """Write a file in one step. Fails if it exists."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        new.write_bytes(content)
        os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def new_ledgers_are_copies() -> Iterator[None]:
    """Let new ledgers begin as copies of a ledger without rows: making the tables takes longer."""
    content, make = empty_ledger(), database._create

    def copied(engine: Engine) -> None:
        if engine.dialect.name == "sqlite" and (name := engine.url.database) and not Path(name).exists():
            with suppress(OSError):
                _put(content, Path(name))
        make(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_create", copied)
        yield


@cache
def _in_memory() -> tuple[sqlite3.Connection, Engine]:
    """Return the database in which journals are replayed. There is one, since making it takes as long as a replay."""
    driver = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    engine = create_engine("sqlite://", creator=lambda: driver, poolclass=StaticPool)
    event.listen(engine, "begin", database._begin_sqlite)
    return driver, engine


@cache
def _empty_for_memory() -> bytes:
    """Return the file of a ledger without rows that has no write-ahead log."""
    content = empty_ledger()
    return content[:18] + b"\x01\x01" + content[20:]


def is_seldom(path: Path) -> bool:
    """True if a ledger has a verb or a kind of row that none of the replayed journals had."""
    return not _held(path) <= replayed.keys()


def _held(path: Path) -> set[str]:
    """Return the verbs of a journal, and the kinds of rows in its ledger, which show a verb that was not written."""
    told = re.findall(rb'\["(\w+)",', path.with_name(JOURNAL).read_bytes())
    held = VERBS.keys() & {each.decode() for each in set(told)}
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as driver:
        for name, states, filled, query in _kinds_of_rows():
            for row in driver.execute(query):
                held |= {f"{name} {each}" for each in row[: len(states)]}
                held |= {f"{name}.{each}" for each, rows in zip(filled, row[len(states) :], strict=True) if rows}
    return held


@cache
def _kinds_of_rows() -> list[tuple[str, list[str], list[str], str]]:
    """Return for each table its columns of states, its nullable columns, and a query that counts these."""
    kinds = []
    for name, table in metadata.tables.items():
        states = [each.name for each in table.columns if each.name in STATES]
        filled = [each.name for each in table.columns if each.nullable and each.name not in STATES]
        if name not in APART:
            shown = ", ".join([*states, *(f'count("{each}")' for each in filled), "count(*)"])
            by = f" GROUP BY {', '.join(states)}" if states else ""
            kinds.append((name, states, [*filled, "*"], f'SELECT {shown} FROM "{name}"{by}'))
    return kinds


def assert_replay_is_equal(path: Path) -> None:
    """Replay the journal of a ledger, and compare every table. Skips a ledger that a test left unreadable."""
    try:
        ledger = Ledger.open(path)
    except LedgerError:
        return
    replayed.update(_held(path))
    with closing(ledger), tempfile.TemporaryDirectory() as folder:
        journal = journal_of(ledger).path
        for told in map(TIMES.findall, journal.read_text().split(f'"{CLOCK_IS_RIGHT}"')):
            assert told == sorted(told), f"the times of {path.name} go back"
        copied = Path(shutil.copy(journal, folder))
        if (closed := journal.with_suffix("")).is_dir():
            shutil.copytree(closed, copied.with_suffix(""))
        wanted, found = rows_of(ledger), _replayed(copied)
        for name, rows in wanted.items():
            assert rows - found[name] == found[name] - rows == Counter(), f"table {name} of {path.name}"
        if (path.parent / "batches").is_dir():
            assert_rejects_are_as_ruled(ledger)
            assert_batches_count_their_rows(ledger, path.parent)


def assert_rejects_are_as_ruled(ledger: Ledger) -> None:
    """Assert that each reject has the state that the rule gives it, in whatever order the facts came."""
    kept = {(each.target, each.reject_id): each for each in ledger.read(select(*t.reject.c))}
    for target in {target for target, _ in kept}:
        for state, _, _, name in changes(ledger, target, [each for of, each in kept if of == target]):
            each = kept[target, name]
            raise AssertionError(f"a reject of stage {each.stage} is {each.state}, and by the rule {state}")


def assert_batches_count_their_rows(ledger: Ledger, home: Path) -> None:
    """Assert that each batch that has ended counts its rows by their first outcomes, and has none whose outcome is
    open. Batches without a run's folder were written by tests.
    """
    for batch in ledger.batches():
        target, batch_id, state = (batch[name] for name in ("target", "batch_id", "state"))
        if state != "running" and list((home / "batches" / batch_id).glob("run-*")):
            rows = ledger.row_counts(target, batch_id)
            counted = {name: rows[name][0] for name in OUTCOMES if name in rows}
            assert counted == {name: batch[name] for name in OUTCOMES if batch[name]}, f"{batch_id} is {state}"
            assert batch["records"] == batch["accepted"] + batch["rejected"], f"{batch_id} is {state}"
            assert not rows_left(ledger, target, batch_id, 1), f"{batch_id} is {state}"


def _replayed(journal: Path) -> dict[str, Counter[tuple[object, ...]]]:
    """Return every table of a ledger that is made from a journal alone."""
    driver, engine = _in_memory()
    driver.deserialize(_empty_for_memory())
    driver.execute(f"PRAGMA foreign_keys={database.SQLITE['foreign_keys']}")
    again = Ledger(engine, lambda: datetime.now(UTC), BesideFile(Journal(journal)))
    with again.transaction():
        """It begins with what the journal tells."""
    return rows_of(again)
