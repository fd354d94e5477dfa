"""Parquet files: rows in chunks, each cell as the text that a CSV would have."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from pipelines.feeds.reading.chunks import CHUNK
from pipelines.feeds.reading.packed import ALWAYS_TAKEN, MOST_TIMES
from pipelines.feeds.reading.tables import TableFileReader, TableRow
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import named_columns
from pipelines.feeds.terms.times import in_hours
from pipelines.home.batch import UnreadableFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ALWAYS_ROWS = 5_000_000
"""A file may have this many rows, or as many as it has bytes: rows without content need hardly any."""
FEW_ROWS = 20
"""The number of lists or objects converted to text at once: each may be long, however small the file is."""
SPARK = b"org.apache.spark.version"
HAS_NO_TEXT = "bytes that are not UTF-8, or a day, a time or a zone that does not exist; export the column as text"
NO_TEXT = ValueFault("FEED-FILE-09", HAS_NO_TEXT)


class ParquetReader(TableFileReader):
    """A reader of a Parquet file. The line of a row is its number. nested: columns of lists or objects."""

    def open(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        opened = partial(pq.ParquetFile, self._path, memory_map=True, coerce_int96_timestamp_unit="us")
        try:
            self._file = self.held.enter_context(opened())
            texts = [each.name for each in self._file.schema_arrow if each.type in (pa.string(), pa.binary())]
            if texts:  # a text that many rows share is stored once
                self._file = self.held.enter_context(opened(read_dictionary=texts))
            schema = self._file.schema_arrow
        except (pa.ArrowException, OSError):
            raise UnreadableFile(f"{self.name}: not a Parquet file, or a damaged one; export it again") from None
        self._check_size()
        self._of_utc = _moments_of_spark(self._file)
        self.take_header(schema.names)
        places = enumerate(self.header or (), 1)
        self._named = [column if self._is_named(column, place) else None for place, column in places]
        self.nested = [each.name for each in schema if pa.types.is_nested(each.type)]
        kinds = zip(self._named, schema.types, strict=True)
        if lost := [column for column, kind in kinds if column and pa.types.is_nested(kind)]:
            raise UnreadableFile(
                f"{self.name}: {', '.join(lost)} holds lists or objects instead of single values; "
                "export its parts as columns of their own, or as NDJSON"
            )

    def _is_named(self, column: str, place: int) -> bool:
        """True if the feed names a column: by its name, as a column of a joined file, or by its position."""
        joined = (f"{join}.{column}" for join in self._own.join)
        return not named_columns(self._own).keys().isdisjoint((column, f"#{place}", *joined))

    def _check_size(self) -> None:
        about, size = self._file.metadata, self._path.stat().st_size
        groups = [about.row_group(place) for place in range(about.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > max(
            ALWAYS_TAKEN, MOST_TIMES * size
        ) or about.num_rows > max(ALWAYS_ROWS, size):
            raise self._too_large()

    def _too_large(self) -> UnreadableFile:
        return UnreadableFile(
            f"{self.name}: unpacks to far more than an export of its size; if it is one, export it as CSV"
        )

    def rows(self) -> Iterator[TableRow]:
        left = max(ALWAYS_TAKEN, MOST_TIMES * self._path.stat().st_size)
        for batch in map(self._in_utc, self._batches()):
            columns = [self._each_text(column) for column in batch.columns]
            for cells in zip(*columns, strict=True):
                self.counted.lines += 1
                left -= sum(map(len, filter(None, cells)))
                if left < 0:  # a long text that is in the file once may be in every row
                    raise self._too_large()
                if any(cells) or None in cells:
                    fault = self._fault(cells) if None in cells else None
                    yield TableRow(self.counted.lines, [cell or "" for cell in cells], fault)
                else:
                    self.counted.blank += 1

    def _fault(self, cells: Sequence[str | None]) -> ValueFault | None:
        """Return the fault of a row with cells without a text (None) in columns that the feed names; else None."""
        lost = [column for column, cell in zip(self._named, cells, strict=True) if column and cell is None]
        return ValueFault(NO_TEXT.rule, f"{', '.join(lost)}: {HAS_NO_TEXT}") if lost else None

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        try:
            yield from self._file.iter_batches(batch_size=CHUNK)
        except (pa.ArrowException, OSError):
            raise UnreadableFile(f"{self.name}: the Parquet data is damaged; export the file again") from None

    def _in_utc(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        for place, field in enumerate(batch.schema):
            if field.name in self._of_utc:
                moments = batch.column(place).cast(pa.timestamp("us", "UTC"))
                batch = batch.set_column(place, field.name, moments)
        return batch

    def _each_text(self, column: "pa.Array[Any]") -> Iterable[str | None]:
        """Return a column as texts; lists and objects are converted a few at a time."""
        import pyarrow as pa

        if not pa.types.is_nested(column.type):
            return self._texts(column)
        parts = (column.slice(first, FEW_ROWS) for first in range(0, len(column), FEW_ROWS))
        return chain.from_iterable(map(self._texts, parts))

    def _texts(self, column: "pa.Array[Any]") -> list[str | None]:
        """Return a column as texts; None for bytes that are no text, and for days that no calendar has."""
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            texts = [*self._texts(column.dictionary), ""]
            places = column.indices.fill_null(len(texts) - 1).to_pylist()
            return [texts[place] for place in places]
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":  # Python's datetimes have microseconds
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_duration(column.type) and column.type.unit == "ns":
            column = column.cast(pa.duration("us"), safe=False)
        write = self._writer(column.type)
        try:
            return ["" if value is None else write(value) for value in column.to_pylist()]
        except (ValueError, OverflowError, LookupError):
            return [*map(self._text_of, column)]

    def _text_of(self, cell: "pa.Scalar[Any]") -> str | None:
        """Return the text of a cell; None if Python has no value for it, such as a day of the year 20000."""
        try:
            write = self._writer(cell.type)
            return "" if (value := cell.as_py()) is None else write(value)
        except (ValueError, OverflowError, LookupError):
            return None

    def _writer(self, kind: "pa.DataType") -> Callable[[Any], str | None]:
        import pyarrow as pa

        if pa.types.is_fixed_size_binary(kind):
            return lambda value: _decoded(value.rstrip(b"\0"))  # zero bytes that fill up a short text
        if pa.types.is_float16(kind) or pa.types.is_float32(kind):
            return lambda value: self._written(_decimal(np.float32(value)))  # 0.1, not the double nearest to it
        return _WRITERS.get(str(kind), self._written)

    def _written(self, value: object) -> str:
        """Return a value as a text; NaN is absent."""
        if isinstance(value, int | str | UUID):
            return str(value)
        if isinstance(value, float):
            value = Decimal(repr(value)) if abs(value) < _EXACT else _decimal(value)
        if isinstance(value, Decimal):
            return "" if value.is_nan() else self._numbers.of(value) if value.is_finite() else str(value)
        if isinstance(value, timedelta):
            return in_hours(value)
        if isinstance(value, bytes):  # of a list or an object
            return text if (text := _decoded(value)) is not None else value.hex()
        if hasattr(value, "isoformat"):
            return str(value.isoformat())
        return json.dumps(value, default=self._written, ensure_ascii=False)


def _moments_of_spark(file: "pq.ParquetFile") -> frozenset[str]:
    """Return the columns of times that Spark wrote as INT96. They are in UTC, which the column cannot say."""
    if SPARK not in (file.metadata.metadata or {}):
        return frozenset()
    columns = map(file.schema.column, range(len(file.schema)))
    return frozenset(column.path for column in columns if column.physical_type == "INT96")


def _decimal(value: float | np.float32) -> Decimal:
    """Return a number with at least one decimal. The decimal shows that it is no key: its last digits may be lost."""
    return Decimal(np.format_float_positional(value, trim="0"))


_EXACT = 1e16
"""The number from which Python writes floats without decimals."""


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


_WRITERS: dict[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(("string", "large_string", "string_view"), str),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), _decoded),
    "bool": lambda value: "true" if value else "false",
}
"""The writers of values, by the name of their type in Arrow."""
