"""Write Parquet row by row and read it back sorted, so that the stages' memory does not grow with a file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.home import arrow, files

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH = 5_000
GROUP_SIZE = 8 << 20
"""Bytes of rows written as one group. For each group of a file, its writer and readers keep 10 kB in memory."""
BATCH_ITSELF = 16 << 10
"""Bytes of the objects of a batch apart from its values: up to 20 kB, whether it has rows or not."""
MEMORY = "96MB"
BATCH_SIZE = 16 << 20
REPEATING = ["lane", "patient_id", "stage"]
"""Columns with repeated values. A dictionary for every column would take a fifth of the time of writing."""


class ParquetWriter:
    """A Parquet file of one schema, written some thousand rows at a time. It gets its name when it is complete.

    needed: True to keep a file without rows too.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, needed: bool = True) -> None:
        self._needed = needed
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._schema = schema
        self._rows: list[tuple[Any, ...]] = []
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self.count = 0

    def __enter__(self) -> Self:
        self._writer = pq.ParquetWriter(
            self._part,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=REPEATING,
            write_statistics=False,  # nobody searches rows by them, and they contain whole values
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self._close_rows()
            self._write()
        self._writer.close()
        if kind is None and (self.count or self._needed):
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)

    def add(self, *row: Any) -> None:
        """Add one row, with its values in the order of the schema."""
        self._rows.append(row)
        self.count += 1
        if len(self._rows) >= BATCH:
            self._close_rows()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add any number of rows at once. They are written together with rows before and after them."""
        self.count += batch.num_rows
        self._take(batch)

    def _close_rows(self) -> None:
        if self._rows:
            self._take(arrow.batch_of_rows(self._rows, self._schema))
            self._rows.clear()

    def _take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._size += batch.nbytes + BATCH_ITSELF
        if self._size >= GROUP_SIZE:
            self._write()

    def _write(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches.clear()
            self._size = 0
            # Otherwise freed memory stays with the process: 20 MB for each million rows.
            pa.system_memory_pool().release_unused()


def batches(path: Path, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, some at a time, and release them, while pyarrow would keep all.

    A batch is of one group, so that long rows are few.
    """
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            yield from file.iter_batches(rows, row_groups=[group], columns=columns)


def rows_of(path: Path, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a Parquet file, each as a tuple of these columns."""
    for batch in batches(path, BATCH, columns):
        yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


def is_whole(path: Path) -> bool:
    """True if a Parquet file was not cut short since it was written."""
    try:
        pq.read_metadata(path)
    except (ValueError, OSError):
        return False
    return True


def sorter(spill: Path) -> "DuckDBPyConnection":
    """Return a new DuckDB that uses little memory and spills into the folder."""
    spill.mkdir(mode=0o700, parents=True, exist_ok=True)
    return files.open_in_memory(
        {"memory_limit": MEMORY, "temp_directory": str(spill), "threads": 1, "preserve_insertion_order": True}
    )
