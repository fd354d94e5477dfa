"""Parquet in parts: a large file takes no more memory than a small one, written or read."""

import os
import weakref
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.home import spill

SCHEMA = pa.schema({"line": pa.int64(), "text": pa.string()})


def text_nobody_can_pack() -> str:
    return os.urandom(500).hex()


def test_memory_of_rows_that_were_read_is_released(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.parquet", spill.GROUP_SIZE // 200
    with spill.ParquetWriter(path, SCHEMA) as out:
        for line in range(rows):
            out.add(line, text_nobody_can_pack())
    before, held, lines = pa.total_allocated_bytes(), 0, 0
    for batch in spill.batches(path, 1_000, SCHEMA.names):
        held = max(held, pa.total_allocated_bytes() - before)
        lines += batch.num_rows
    assert lines == rows
    assert held < path.stat().st_size / 2


def test_rows_are_written_in_groups_by_their_size_however_few_come_at_once(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.parquet", 3 * spill.BATCH
    with spill.ParquetWriter(path, SCHEMA) as out:
        for line in range(rows):
            out.add(line, "")
        some = pa.record_batch({"line": range(100), "text": ["x" * 1_000] * 100}, schema=SCHEMA)
        for _ in range(5 * spill.GROUP_SIZE // 2 // some.nbytes):
            out.add_batch(some)
    assert pq.read_metadata(path).num_row_groups == 3
    assert sum(batch.num_rows for batch in spill.batches(path, 1_000, ["line"])) == out.count


@pytest.mark.parametrize(("rows", "most"), [(0, 0), (1, spill.GROUP_SIZE // spill.BATCH_ITSELF)])
def test_batches_of_few_rows_are_not_held_until_their_values_are_a_group(rows: int, most: int, tmp_path: Path) -> None:
    """A file without rejects has an empty batch of them for each chunk; of ten million rows these took 100 MB."""
    some, held = pa.record_batch({"line": [1], "text": ["x"]}, schema=SCHEMA), list[weakref.ref[pa.RecordBatch]]()
    with spill.ParquetWriter(tmp_path / "rows.parquet", SCHEMA) as out:
        for _ in range(2 * spill.GROUP_SIZE // spill.BATCH_ITSELF):
            batch = some.slice(0, rows)
            held.append(weakref.ref(batch))
            out.add_batch(batch)
        del batch
        assert sum(each() is not None for each in held) <= most
