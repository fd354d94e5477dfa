"""The laws of the journal: replayed into an empty database it gives the same tables, row for row, and its times never
go back.
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
from pipelines.ledger.columns import metadata
from pipelines.ledger.database import open_engine
from pipelines.ledger.journal import Journal
from pipelines.ledger.journal_sync import BesideFile
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import changes
from pipelines.ledger.tables import LedgerError
from pipelines.ledger.verbs import VERBS

APART = {table.name for table in NO_FACTS}
"""Tables that are no facts."""
STATES = ("state", "fate", "stage", "command", "kind")
"""Columns with few different values, each of which some verb writes."""
TIMES = re.compile(r'^{"n":[0-9]+,"at":"([^"]+)".*\n', re.MULTILINE)
"""Of whole lines: that of a decision to go back is split."""
replayed = Counter[str]()
"""How many journals were replayed in this process, by each verb and each thing that their ledgers hold."""


def journal_of(ledger: Ledger) -> Journal:
    """The journal beside a ledger in a file."""
    in_step = ledger._in_step
    assert isinstance(in_step, BesideFile)
    return in_step.journal


def rows_of(ledger: Ledger) -> dict[str, Counter[tuple[object, ...]]]:
    """Every table of a ledger as a bag of rows, as the driver gives them."""
    with ledger.engine.begin() as connection:
        driver: Any = connection.connection.driver_connection
        queries = _queries(ledger.engine.dialect.name)
        return {name: Counter(driver.execute(query)) for name, query in queries.items()}


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


@cache
def _in_memory() -> tuple[sqlite3.Connection, Engine]:
    """The one database in which journals are replayed: to make another takes as long as a replay."""
    driver = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    engine = create_engine("sqlite://", creator=lambda: driver, poolclass=StaticPool)
    event.listen(engine, "begin", database._begin_sqlite)
    return driver, engine


@cache
def _empty_for_memory() -> bytes:
    """The same ledger without a row, as a file that keeps no log beside it."""
    content = empty_ledger()
    return content[:18] + b"\x01\x01" + content[20:]


def is_seldom(path: Path) -> bool:
    """True if a ledger holds something that none of those had whose journals were replayed here."""
    return not _held(path) <= replayed.keys()


def _held(path: Path) -> set[str]:
    """Return the verbs of a journal, and what the tables beside it hold: a verb left out shows only there."""
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
    """Of each table its columns of states, those that may be empty, and a query for how many rows fill the latter."""
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
    """Replay the journal beside a ledger, and compare every table. One that cannot be opened was left so by a test."""
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


def assert_rejects_are_as_ruled(ledger: Ledger) -> None:
    """Each reject has the state that the rule gives it now, whatever came when."""
    kept = {(each.target, each.reject_id): each for each in ledger.read(select(*t.reject.c))}
    for target in {target for target, _ in kept}:
        for state, _, _, name in changes(ledger, target, [each for of, each in kept if of == target]):
            each = kept[target, name]
            raise AssertionError(f"a reject of stage {each.stage} is {each.state}, and by the rule {state}")


def _replayed(journal: Path) -> dict[str, Counter[tuple[object, ...]]]:
    """Every table of a ledger that a journal makes from nothing."""
    driver, engine = _in_memory()
    driver.deserialize(_empty_for_memory())
    driver.execute(f"PRAGMA foreign_keys={database.SQLITE['foreign_keys']}")
    again = Ledger(engine, lambda: datetime.now(UTC), BesideFile(Journal(journal)))
    with again.transaction():
        """It begins with what the journal tells."""
    return rows_of(again)
