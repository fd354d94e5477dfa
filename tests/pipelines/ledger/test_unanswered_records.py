"""Records of a stopped file that the ledger has from earlier files, and its rejects: many need no more memory."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.ledger import unanswered_records
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.unanswered_records import (
    LATER,
    OUTCOMES,
    OWN_REJECTS,
    RECORDS,
    is_unanswered,
    unanswered,
)
from tests.support.ledgers import start

RECORDS_OF_FILE = 40_000
BATCH = {
    "target": "t",
    "batch_id": "payments-1",
    "source": "default",
    "resource_type": "PaymentNotice",
    "state": "stopped",
    "received_at": "2026-03-01T00:00:00+00:00",
}


class Ledger:
    """A ledger that has each record from an earlier file, with another content, and all but some from a later one.

    rejects: how many the file has, of which the last is open.
    """

    def __init__(self, left: int, rejects: int = 0) -> None:
        self.left, self.rejects = left, rejects

    def rows(self, *_: Any) -> list[Any]:
        return [(line, line == self.rejects) for line in range(1, self.rejects + 1)]

    def value(self, *_: Any) -> None:
        return None

    def rows_of_keys(self, query: str, _: Any, keys: Any) -> Iterator[tuple[Any, ...]]:
        return ((key, "other", 0) for key in keys if query == RECORDS)

    def plain_rows(self, query: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if query == LATER:
            return [(1,)]
        if query == OWN_REJECTS:
            first, most = int(given[-2] or 0) + 1, given[-1]
            lines = range(first, min(first + most, self.rejects + 1))
            return [(f"{line:09}", line, line == self.rejects) for line in lines]
        assert query == OUTCOMES
        first, most = given[1] + 1, given[-1]
        return [(line, f"key-{line}") for line in range(first, min(first + most, RECORDS_OF_FILE - self.left))]


def stopped(home: Path) -> HomeBatches:
    """A file of records that was stopped."""
    run = home / "batches" / "payments-1" / "run-1"
    run.mkdir(parents=True)
    (run.parent / "source").touch()
    lines = range(RECORDS_OF_FILE)
    columns = {"line": lines, "key": [f"key-{line}" for line in lines], "content_hash": ["this"] * RECORDS_OF_FILE}
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), run / "accepted.parquet")
    return HomeBatches(home / "batches")


def test_a_stopped_file_of_many_changed_records_is_examined_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million of them took 1.7 GB."""
    monkeypatch.setattr(unanswered_records, "MOST_CHANGED", 5_000)
    monkeypatch.setattr(unanswered_records, "OUTCOMES_A_QUERY", 1_000)
    kept = stopped(tmp_path)
    ledger: Any = Ledger(left=3)
    tracemalloc.start()
    try:
        found = [line for line in unanswered(ledger, kept, BATCH) if line]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [RECORDS_OF_FILE - 3, RECORDS_OF_FILE - 2, RECORDS_OF_FILE - 1]
    assert most < 3_000_000


@pytest.mark.long
def test_a_stopped_file_of_many_rejects_is_examined_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of what is broken asks this again and again."""
    monkeypatch.setattr(unanswered_records, "OUTCOMES_A_QUERY", 1_000)
    kept = stopped(tmp_path)
    ledger: Any = Ledger(left=0, rejects=200_000)
    tracemalloc.start()
    try:
        first, most = next(unanswered(ledger, kept, BATCH)), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first == 200_000
    assert most < 3_000_000


def test_a_file_that_is_done_with_is_read_again_only_once_ledger_or_file_has_changed(
    tmp_path: Path, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's sensors ask every minute, and a file may have 200,000 records."""
    kept, read = stopped(tmp_path), list[bool]()

    def nothing(*_: Any) -> Iterator[None]:
        read.append(True)
        yield from ()

    monkeypatch.setattr(unanswered_records, "unanswered", nothing)

    def times_read() -> int:
        read.clear()
        assert not any(is_unanswered(ledger, kept, BATCH) for _ in range(3))
        return len(read)

    assert (times_read(), times_read()) == (1, 0)
    start(ledger, "payments-a")
    assert times_read() == 1
    source = kept.path / "payments-1" / "source"
    source.unlink()
    source.mkdir()
    (source / "payments.csv").touch()
    assert times_read() == 1
