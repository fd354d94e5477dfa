"""Queries of an import about its batch, which look at no record of the other batches of its target."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from pipelines.ledger.doubts import doubtful
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.resubmitted_rows import lines_at
from pipelines.validation import withheld_files
from tests.support.ledgers import OF, TARGET, intent, start


def session(ledger: Ledger) -> Any:
    return SimpleNamespace(ledger=ledger, target=TARGET)


def place(batch_id: str) -> Any:
    return SimpleNamespace(batch_id=batch_id, line=2)


ASKED: dict[str, Callable[[Ledger], object]] = {
    "was loaded": lambda ledger: withheld_files._was_loaded(session(ledger), "payments-b"),
    "under other keys": lambda ledger: withheld_files._under_other_keys(session(ledger), "payments-b", {"k9": (2, ())}),
    "read otherwise": lambda ledger: ledger.is_read_otherwise(TARGET, "payments-b", "f1"),
    "keys by line": lambda ledger: ledger.keys_on(TARGET, "payments-b", [2]),
    "what stands on lines": lambda ledger: lines_at(ledger, TARGET, [place("payments-b")]),
    "in doubt": lambda ledger: doubtful(ledger, TARGET, "payments-b"),
}


@pytest.mark.parametrize("case", ASKED)
def test_records_of_other_batches_are_not_read(case: str, tmp_path: Path) -> None:
    """A million of them took seconds of each import, however small."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    start(ledger, "payments-a", "payments-b")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1")])
    asked: list[tuple[str, Any]] = []
    sa.event.listen(ledger.engine, "before_cursor_execute", lambda *said: asked.append(said[2:4]))
    assert not ASKED[case](ledger)
    queries = [said for said in asked if "FROM record" in said[0]]
    with ledger.engine.connect() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all() for text, values in queries]
    steps = [step[3] for plan in plans for step in plan if "record" in step[3].split()[:2]]
    assert steps
    assert all("record_by_batch" in step for step in steps)
    ledger.close()
