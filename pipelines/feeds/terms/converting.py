"""The converter of each column: the function from the text of a cell to the column's value."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from pipelines.feeds.terms.columns import Column, ValueFault, amount, code, key, number, plain_text, reference
from pipelines.feeds.terms.times import Conventions, times_of

Converter = Callable[[str], object]

REMEMBERED = 4096
"""The number of converted ids and times that are cached for a column, since they repeat throughout a file."""
LONGEST_REMEMBERED = 100
"""The longest cached text, in characters: no id or time is longer."""


def converter(column: Column, conventions: Conventions) -> Converter:
    """Return the function that converts a cell of this column to its value."""
    if isinstance(column.shape, tuple):
        types, bare = column.shape, column.bare
        return _remembering(lambda text: reference(text, types, bare))
    if column.shape == "time":
        return _remembering(times_of(conventions))
    if column.shape == "amount":
        return lambda text: amount(text, conventions.numbers)
    if column.shape == "number":
        return lambda text: number(text, conventions.numbers)
    return _CONVERTERS[column.shape]


def days_for_none(texts: Sequence[str], conventions: Conventions) -> list[str]:
    """Return the texts that earlier versions, which took any day, read as times, and that are faults today."""
    of_any_day = times_of(replace(conventions, takes_any_day=True))
    read = times_of(conventions)
    return [
        text for text in texts if isinstance(read(text), ValueFault) and not isinstance(of_any_day(text), ValueFault)
    ]


def _remembering(convert: Converter) -> Converter:
    """Return the converter with a cache for short texts."""
    kept = lru_cache(REMEMBERED)(convert)
    return lambda text: kept(text) if len(text) <= LONGEST_REMEMBERED else convert(text)


_CONVERTERS: dict[str, Converter] = {"key": key, "text": plain_text, "code": code}
