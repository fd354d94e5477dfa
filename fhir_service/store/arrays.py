"""Write columns of rows as PostgreSQL's binary arrays: many rows are then one statement of an exchange.

COPY would take two exchanges for each table. psycopg writes its own arrays value by value, which takes three times as
long.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEAD = struct.Struct("!iiIii").pack
_LENGTH = struct.Struct("!i").pack
_NUMBER = struct.Struct("!iq").pack
_NULL = _LENGTH(-1)
_EPOCH, _MICROSECOND = datetime(2000, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class Array:
    """The values of a column as a binary array."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


class _Texts(Array):
    """An array of type `text[]`."""


class _Numbers(Array):
    """An array of type `int8[]`."""


class _Times(Array):
    """An array of type `timestamptz[]`."""


def _texts(values: Sequence[str | None]) -> Array:
    parts = [_HEAD(1, 1, 25, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            content = value.encode()
            parts += (_LENGTH(len(content)), content)
    return _Texts(b"".join(parts))


def _numbers(values: Sequence[int | None]) -> Array:
    found = [_NULL if value is None else _NUMBER(8, value) for value in values]
    return _Numbers(_HEAD(1, 1, 20, len(values), 1) + b"".join(found))


def _times(values: Sequence[datetime | None]) -> Array:
    found = [_NULL if value is None else _NUMBER(8, (value - _EPOCH) // _MICROSECOND) for value in values]
    return _Times(_HEAD(1, 1, 1184, len(values), 1) + b"".join(found))


_WRITERS: dict[str, Callable[[Sequence[Any]], Array]] = {"text": _texts, "int8": _numbers, "timestamptz": _times}
_OF_ARRAYS: dict[type[Array], int] = {_Texts: 1009, _Numbers: 1016, _Times: 1185}


def array(kind: str, values: Sequence[Any]) -> Array:
    """Return at least one value of the type `text`, `int8` or `timestamptz` as an array."""
    return _WRITERS[kind](values)


def register(adapters: AdaptersMap) -> None:
    """Let the statements of a connection have arrays as parameters."""
    for kind, oid in _OF_ARRAYS.items():
        adapters.register_dumper(kind, _dumper(oid))


def _dumper(number: int) -> type[Dumper]:
    class Written(Dumper):
        format = Format.BINARY
        oid = number

        def dump(self, obj: Array) -> bytes:
            return obj.content

    return Written
