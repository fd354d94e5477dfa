"""Rows of payments in the order of sending, and keys that come more than once, in files larger than what is sorted."""

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.feeds.files.catalog import load_feeds
from pipelines.home import arrow, files, spill
from pipelines.validation import grouping
from pipelines.validation.tables import MAPPED

Drawn = dict[str, Any]


def drawn(dice: random.Random, rows: int, keys: int) -> list[Drawn]:
    """Rows on lines in no order, many of one moment, some without a moment or a key, some doubtful."""
    lines = dice.sample(range(2, rows * 3), rows)
    return [
        dict.fromkeys(MAPPED.names)
        | {"line": line, "lines": 1, "at": dice.choice([None, -5, 0, 7, 7, dice.randrange(10**15)])}
        | {"key": dice.choice([None, f"k{dice.randrange(keys)}", f"k{dice.randrange(keys)}"])}
        | {"hash": dice.choice("ab"), "raw": f"{line:0200}", "is_doubtful": dice.random() < 0.1}
        for line in lines
    ]


def in_order(folder: Path, rows: list[Drawn]) -> list[Drawn]:
    whole = arrow.batch_of_rows([tuple(row[name] for name in MAPPED.names) for row in rows], MAPPED)
    pq.write_table(pa.Table.from_batches([whole]), folder / "mapped.parquet", row_group_size=40)
    feed = load_feeds().match("payments.csv")
    assert feed
    return [row for batch in grouping.chunks(folder / "mapped.parquet", feed.kind) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_rows_come_by_moment_and_line_with_what_their_keys_share(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-PAY-04, LEDGER-13: with some of the keys that come again in memory at a time."""
    few = {"BYTES_SORTED_AT_ONCE": 20_000, "KEYS_AT_ONCE": 9, "LOOKED_AT": 5}
    for name, number in few.items():
        monkeypatch.setattr(grouping, name, number)
    stretches = list[Path]()
    dealt = grouping._dealt

    def noted(*given: Any) -> list[Path]:
        stretches.extend(dealt(*given))
        return stretches

    monkeypatch.setattr(grouping, "_dealt", noted)
    dice = random.Random(seed)
    rows = drawn(dice, dice.choice([0, 1, 30, 500]), 400)
    of_keys = dict[str, list[Drawn]]()
    for row in rows:
        if row["key"] is not None and not row["is_doubtful"]:
            of_keys.setdefault(row["key"], []).append(row)
    shared = {
        key: {"first_line": min(row["line"] for row in some), "differs": len({row["hash"] for row in some}) > 1}
        for key, some in of_keys.items()
        if len(some) > 1
    }
    alone = {"first_line": None, "differs": None}
    by_place = sorted(rows, key=lambda row: (row["at"] is None, row["at"] or 0, row["line"]))
    assert in_order(tmp_path, rows) == [
        {name: row[name] for name in grouping.SHOWN} | shared.get(row["key"], alone) for row in by_place
    ]
    assert (len(stretches) > 2) is (len(rows) == 500)
    assert [path.name for path in tmp_path.iterdir()] == ["mapped.parquet"]


@pytest.mark.parametrize(
    ("rows", "texts", "keys"),
    [
        *(pytest.param(rows, 80, keys, marks=pytest.mark.long) for rows, keys in ((200_000, 200_000), (300_000, 1))),
        (60_000, 900, 60_000),
        (100_000, 80, 1),
    ],
)
def test_the_memory_of_sorting_is_enough_for_long_rows_and_for_keys_that_all_come_again(
    rows: int, texts: int, keys: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-PAY-04, LEDGER-13: in a database of its own, since those that tests share have all memory."""
    monkeypatch.setattr(files, "open_in_memory", lambda settings: duckdb.connect(":memory:", config=dict(settings)))
    dice = random.Random(rows)
    at = [dice.randrange(10**13) for _ in range(rows)]
    with spill.ParquetWriter(tmp_path / "mapped.parquet", MAPPED) as writer:
        for begin in range(0, rows, 2_000):
            lines = range(begin, begin + 2_000)
            columns = dict.fromkeys(MAPPED.names, [None] * len(lines)) | {
                "line": [*lines],
                "lines": [1] * len(lines),
                "at": at[begin : begin + 2_000],
                "key": [f"{line % keys:036}" for line in lines],
                "hash": [dice.randbytes(32).hex() for _ in lines],
                "record": [str(dice.random()).ljust(texts, "x") for _ in lines],
                "raw": [str(dice.random()).ljust(texts, "x") for _ in lines],
                "is_doubtful": [False] * len(lines),
            }
            writer.add_batch(pa.RecordBatch.from_pydict(columns, MAPPED))
    feed = load_feeds().match("payments.csv")
    assert feed
    batches = grouping.chunks(tmp_path / "mapped.parquet", feed.kind)
    found = [line for batch in batches for line in batch.column("line").to_pylist()]
    assert found == sorted(range(rows), key=lambda line: (at[line], line))
