"""Queries of an import about its batch or some of its rows, which look at no other row of its target."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from pipelines.importing.current_problems import _open_rejects
from pipelines.ledger.batch_counts import rows_left
from pipelines.ledger.columns import metadata
from pipelines.ledger.doubts import doubtful
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.planner_figures import LARGE
from pipelines.ledger.reject_state import open_unanswered
from pipelines.ledger.rejects import feeds_answered, open_by_batch, reject_places, unmet_since
from pipelines.ledger.resubmitted_rows import lines_at, put_in_for
from pipelines.ledger.standing import undone_by_batch
from pipelines.validation import withheld_files
from tests.support.ledgers import OF, TARGET, intent, start


def session(ledger: Ledger) -> Any:
    return SimpleNamespace(ledger=ledger, target=TARGET)


def place(batch_id: str) -> Any:
    return SimpleNamespace(batch_id=batch_id, line=2)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
FEW = [f"r{number}" for number in range(5)]


def unanswered_rejects(ledger: Ledger) -> None:
    with ledger.transaction():
        open_unanswered(ledger, (TARGET, *OF), FEW)


ASKED: dict[str, Callable[[Ledger], object]] = {
    "was loaded": lambda ledger: withheld_files._was_loaded(session(ledger), "payments-b"),
    "under other keys": lambda ledger: withheld_files._under_other_keys(session(ledger), "payments-b", {"k9": (2, "")}),
    "read otherwise": lambda ledger: ledger.is_read_otherwise(TARGET, "payments-b", "f1"),
    "keys by line": lambda ledger: ledger.keys_on(TARGET, "payments-b", [2]),
    "what stands on lines": lambda ledger: lines_at(ledger, TARGET, [place("payments-b")]),
    "in doubt": lambda ledger: doubtful(ledger, TARGET, "payments-b"),
}
LATE = "2999-01-01T00:00:00.000000Z"
BY_KEY = "reject_by_key (target=? AND source=? AND resource_type=? AND source_key=?)"
OF_ROWS: dict[str, tuple[Callable[[Ledger], object], str, str]] = {
    "rows that are left": (lambda ledger: rows_left(ledger, TARGET, "payments-b"), "reject", BY_KEY),
    "rejects of ids": (
        lambda ledger: unmet_since(ledger, TARGET, LATE, FEW),
        "reject",
        "sqlite_autoindex_reject_1 (target=? AND reject_id=?)",
    ),
    "rows put in": (
        lambda ledger: put_in_for(ledger, TARGET, FEW),
        "resubmission",
        "resubmission_of_reject (target=? AND reject_id=?)",
    ),
    "feeds answered": (lambda ledger: feeds_answered(ledger, FEW), "reject", "reject_id=?)"),
    "rejects of a batch": (lambda ledger: reject_places(ledger, TARGET, "payments-b"), "reject", "reject_id=?)"),
    "rejects by state": (open_by_batch, "reject", "COVERING INDEX reject_by_state"),
    "rejects by age": (lambda ledger: _open_rejects(ledger, TARGET, NOW), "reject", "COVERING INDEX reject_by_state"),
    "rejects without an answer": (unanswered_rejects, "reject", "source_key=?)"),
    "rows without an answer": (unanswered_rejects, "resubmission", "target=? AND "),
    "records taken back": (undone_by_batch, "record", "USING INDEX"),
}
"""Questions, with a table, and how their queries find its rows."""


@pytest.mark.parametrize("case", ASKED)
def test_records_of_other_batches_are_not_read(case: str, tmp_path: Path) -> None:
    """A million of them took seconds of each import, however small."""
    steps = steps_of(ASKED[case], "record", tmp_path)
    assert steps
    assert all("record_by_batch" in step or "key=?" in step for step in steps), steps


@pytest.mark.parametrize("case", OF_ROWS)
def test_rejects_of_other_rows_are_not_read(case: str, tmp_path: Path) -> None:
    """Of sixty thousand, each file of corrections read all of them, again and again."""
    ask, table, index = OF_ROWS[case]
    steps = steps_of(ask, table, tmp_path)
    assert steps
    assert all(index in step for step in steps), steps


def steps_of(ask: Callable[[Ledger], object], table: str, folder: Path) -> list[str]:
    """Return the steps over a table in the plans of all queries of a question, whose answer is empty."""
    ledger = Ledger.open(folder / "ledger.db")
    start(ledger, "payments-a", "payments-b")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1")])
    asked: list[tuple[str, Any]] = []
    sa.event.listen(ledger.engine, "before_cursor_execute", lambda *said: asked.append(said[2:4]))
    assert not ask(ledger)
    queries = [said for said in asked if re.search(rf"SELECT.*(FROM|JOIN) {table}\b", said[0], re.DOTALL)]
    with ledger.engine.connect() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all() for text, values in queries]
    ledger.close()
    return [step[3] for plan in plans for step in plan if table in step[3].split()[:2]]


def test_the_large_tables_are_tables_of_the_ledger() -> None:
    assert set(metadata.tables) >= LARGE


def test_a_ledger_of_an_earlier_version_gets_the_figures_of_its_indexes(tmp_path: Path) -> None:
    assert_made_again(tmp_path, "DROP TABLE sqlite_stat1")


@pytest.mark.parametrize("name", ["reject_by_state", "record_undone"])
def test_a_ledger_of_an_earlier_version_gets_the_indexes_that_it_lacks(name: str, tmp_path: Path) -> None:
    assert_made_again(tmp_path, f"DROP INDEX {name}")


def assert_made_again(folder: Path, dropping: str) -> None:
    """Indexes and figures of a new ledger are there again once it is opened after this statement."""
    Ledger.open(folder / "ledger.db").close()
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        made = [db.execute(query).fetchall() for query in (ALL_INDEXES, FIGURES)]
        db.execute(dropping)
    Ledger.open(folder / "ledger.db").close()
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        assert [db.execute(query).fetchall() for query in (ALL_INDEXES, FIGURES)] == made
    assert all(made)


ALL_INDEXES = "SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name"
FIGURES = "SELECT * FROM sqlite_stat1 ORDER BY tbl, idx"
