"""Make Arrow columns from Python values, directly from the buffers that Arrow's format describes.

`pyarrow.array` and `pyarrow.scalar` first look for pandas, and load it if it is installed. That costs half a second
and 60 MB in each process. So this module makes the columns that many processes need for every file.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Values = Sequence[Any] | NDArray[np.object_]


def column(values: Values, kind: pa.DataType) -> pa.Array:
    """Return values as a column; None is null.

    kind: texts, numbers, timestamps (as whole numbers of their unit), truth values, or lists and structs of these (a
    struct is a sequence of its fields). Raises TypeError for another type.
    """
    values = list(values)
    nulls = values.count(None)
    if values and nulls == len(values):
        return pa.nulls(nulls, kind)
    there = [value is not None for value in values] if nulls else None
    if pa.types.is_string(kind):
        return _texts(values, there)
    if pa.types.is_boolean(kind):
        return _of_buffers(values, there, kind, _bits([value is True for value in values]))
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_floating(kind):
        numbers = [0 if value is None else value for value in values] if there else values
        form = f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}"
        return _of_buffers(values, there, kind, np.fromiter(numbers, form, len(values)))
    if pa.types.is_list(kind):
        return _lists(values, there, kind)
    if pa.types.is_struct(kind):
        return _structs(values, there, kind)
    raise TypeError(f"columns of type {kind} are not made here")


def batch(columns: Sequence[Values], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns of values as one batch."""
    made = [column(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.record_batch(made, schema=schema)


def batch_of_rows(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of values as one batch."""
    return batch([*zip(*rows, strict=True)] if rows else [()] * len(schema), schema)


def table_of_rows(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return rows of values as a table."""
    return pa.Table.from_batches([batch_of_rows(rows, schema)])


def _texts(values: list[Any], there: list[bool] | None) -> pa.Array:
    texts = [value or "" for value in values] if there else values
    together = "".join(texts)
    if together.isascii():  # as many bytes as characters
        return _of_buffers(values, there, pa.string(), _offsets(texts), together.encode())
    encoded = [text.encode() for text in texts]
    return _of_buffers(values, there, pa.string(), _offsets(encoded), b"".join(encoded))


def _lists(values: list[Any], there: list[bool] | None, kind: pa.ListType) -> pa.Array:
    each = [value or () for value in values]
    inner = column([*chain.from_iterable(each)], kind.value_type)
    buffers = [_validity(there), pa.py_buffer(_offsets(each))]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[inner])


def _structs(values: list[Any], there: list[bool] | None, kind: pa.StructType) -> pa.Array:
    nothing = (None,) * kind.num_fields
    fields = [*zip(*(value or nothing for value in values), strict=True)] or [()] * kind.num_fields
    children = [column(found, kind.field(place).type) for place, found in enumerate(fields)]
    return pa.Array.from_buffers(kind, len(values), [_validity(there)], children=children)


def _offsets(parts: Sequence[Any]) -> NDArray[np.int32]:
    """Return where each part begins in all parts together, and where the last one ends."""
    ends = np.zeros(len(parts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, parts), np.int32, len(parts)), out=ends[1:])
    return ends


def _bits(flags: Sequence[bool]) -> NDArray[np.uint8]:
    return np.packbits(np.fromiter(flags, np.bool_, len(flags)), bitorder="little")


def _validity(there: list[bool] | None) -> pa.Buffer | None:
    return None if there is None else pa.py_buffer(_bits(there))


def _of_buffers(
    values: list[Any], there: list[bool] | None, kind: pa.DataType, *buffers: NDArray[Any] | bytes
) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [_validity(there), *map(pa.py_buffer, buffers)])
