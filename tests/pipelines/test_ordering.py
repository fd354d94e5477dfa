"""Rows put in order, and keys that come more than once, in files that are larger than what is held of them."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.home import arrow, spill
from pipelines.validation import ordering, repeated
from pipelines.validation.tables import MAPPED

NAMES = MAPPED.names
Drawn = dict[str, Any]


def drawn(dice: random.Random, rows: int, keys: int) -> list[Drawn]:
    """Rows on lines in no order, many of one moment, some without a moment or a key, some doubtful."""
    lines = dice.sample(range(2, rows * 3), rows)
    return [
        dict.fromkeys(NAMES)
        | {"line": line, "lines": 1, "at": dice.choice([None, -5, 0, 7, 7, dice.randrange(10**15)])}
        | {"key": dice.choice([None, f"k{dice.randrange(keys)}", f"k{dice.randrange(keys)}"])}
        | {"hash": dice.choice("ab"), "is_doubtful": dice.random() < 0.1}
        for line in lines
    ]


def written(folder: Path, rows: list[Drawn]) -> Path:
    """Write a file of small groups of rows."""
    whole = arrow.batch_of_rows([tuple(row[name] for name in NAMES) for row in rows], MAPPED)
    pq.write_table(pa.Table.from_batches([whole]), folder / "mapped.parquet", row_group_size=40)
    return folder / "mapped.parquet"


def in_order(file: Path, most: int = 30) -> Iterator[pa.RecordBatch]:
    return ordering.in_order(file, spill.batches(file, 25, NAMES), most)


@pytest.mark.parametrize("seed", range(30))
def test_rows_come_by_their_moments_and_lines(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FEED-FILE-04"""
    monkeypatch.setattr(ordering, "BYTES_AT_ONCE", 1_500)
    dice = random.Random(seed)
    rows = drawn(dice, dice.choice([0, 1, 30, 500]), 400)
    batches = list(in_order(written(tmp_path, rows)))
    assert all(0 < batch.num_rows <= 30 for batch in batches)
    wanted = sorted(rows, key=lambda row: (row["at"] is None, row["at"] or 0, row["line"]))
    assert [row for batch in batches for row in batch.to_pylist()] == wanted


def test_hardly_more_is_held_than_is_sorted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "BYTES_AT_ONCE", 100_000)
    file = written(tmp_path, drawn(random.Random(1), 40_000, 40_000))
    before, most = pa.total_allocated_bytes(), 0
    for _ in in_order(file):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 600_000


def first_lines(rows: list[Drawn]) -> list[tuple[int, int, bool]]:
    """Return what is to be found, by a look at each key."""
    found = dict[str, list[Drawn]]()
    for row in rows:
        if row["key"] is not None and not row["is_doubtful"]:
            found.setdefault(row["key"], []).append(row)
    said = {
        key: (min(row["line"] for row in those), len({row["hash"] for row in those}) > 1)
        for key, those in found.items()
        if len(those) > 1
    }
    return [(place, *said[row["key"]]) for place, row in enumerate(rows) if row["key"] in said]


@pytest.mark.parametrize("is_same_hash", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_keys_that_come_again_are_found(
    seed: int, is_same_hash: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-13: whatever hashes keys have."""
    monkeypatch.setattr(repeated, "HASHES_AT_ONCE", 64)
    monkeypatch.setattr(repeated, "ROWS_A_LOOK", 37)
    if is_same_hash:
        monkeypatch.setattr(repeated, "hash", lambda _: 7, raising=False)
    dice = random.Random(seed)
    rows = drawn(dice, dice.choice([0, 1, 500]), dice.choice([20, 2_000]))
    assert list(repeated.first_lines(written(tmp_path, rows))) == first_lines(rows)
