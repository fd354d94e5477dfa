"""Keep long texts of rows to be sorted in a second file, so that DuckDB sorts short rows, which it can spill."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc

from fhir_service.paths import exists
from pipelines.home import arrow
from pipelines.home.spill import BATCH_SIZE

LONG = 1_000
MARK = "\0"


def aside_of(sorted_file: Path) -> Path:
    """Return the path of the file with the long texts of a file to be sorted."""
    return sorted_file.with_name(f"{sorted_file.name}.texts")


class LongTexts:
    """A file of texts longer than a thousand characters. In the rows, marks with their places replace them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def put_texts(self, batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
        """Return the batch with each long text of the columns replaced by its mark."""
        for name in columns:
            found = batch.column(name)
            if _is_any_long(found):
                put = arrow.column([*map(self.put, found.to_pylist())], pa.string())
                batch = batch.set_column(batch.schema.get_field_index(name), name, put)
        return batch

    def put(self, text: str | None) -> str | None:
        """Return a short text as it is. Write a long one to the file and return its mark: place and size in bytes."""
        if text is None or (len(text) <= LONG and not text.startswith(MARK)):
            return text
        data, place = text.encode("utf-8"), self._size
        self._file = self._file or self._path.open("wb")
        self._file.write(data)
        self._size += len(data)
        return f"{MARK}{place} {len(data)}"


def _is_any_long(texts: pa.Array) -> bool:
    """True if any text may be too long to sort, by its bytes, or begins like a mark."""
    return (pc.max(pc.binary_length(texts)).as_py() or 0) > LONG or pc.any(pc.starts_with(texts, MARK)).as_py() is True


def restored_texts(batches: Iterator[pa.RecordBatch], path: Path, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with their long texts put back, in parts of limited size."""
    if not exists(path):
        yield from batches
        return
    with path.open("rb") as file:
        for batch in batches:
            for part in _bounded(batch, columns):
                yield _with_texts(part, file, columns)


def _bounded(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts. The long texts of a part have a limited size, or are those of a single row."""
    start = size = 0
    for row, texts in enumerate(zip(*(batch.column(name).to_pylist() for name in columns), strict=True)):
        more = sum(_place(text)[1] for text in texts if text and text.startswith(MARK))
        if size and size + more > BATCH_SIZE:
            yield batch.slice(start, row - start)
            start, size = row, 0
        size += more
    yield batch.slice(start)


def _with_texts(batch: pa.RecordBatch, file: BinaryIO, columns: tuple[str, ...]) -> pa.RecordBatch:
    for name in columns:
        found = batch.column(name)
        if pc.any(pc.starts_with(found, MARK)).as_py():
            texts = [_text(text, file) if text and text.startswith(MARK) else text for text in found.to_pylist()]
            batch = batch.set_column(batch.schema.get_field_index(name), name, arrow.column(texts, pa.string()))
    return batch


def _text(mark: str, file: BinaryIO) -> str:
    place, size = _place(mark)
    file.seek(place)
    return file.read(size).decode("utf-8")


def _place(mark: str) -> tuple[int, int]:
    place, _, size = mark[1:].partition(" ")
    return int(place), int(size)
