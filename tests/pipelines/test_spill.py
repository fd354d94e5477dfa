"""Parquet in parts: reading a large file holds no more of it than a small one."""

import os
from pathlib import Path

import pyarrow as pa

from pipelines.home import spill

SCHEMA = pa.schema({"line": pa.int64(), "text": pa.string()})
ROWS, PARTS = spill.BATCH, 20


def text_nobody_can_pack() -> str:
    return os.urandom(50).hex()


def test_what_was_read_of_a_file_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with spill.Writer(path, SCHEMA) as out:
        for line in range(ROWS * PARTS):
            out.add(line, text_nobody_can_pack())
    before, held, lines = pa.total_allocated_bytes(), 0, 0
    for batch in spill.batches(path, 1_000, SCHEMA.names):
        held = max(held, pa.total_allocated_bytes() - before)
        lines += batch.num_rows
    assert lines == ROWS * PARTS
    assert held < path.stat().st_size / 2
