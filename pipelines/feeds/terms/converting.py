"""The converter of each column: what turns the text of a cell into the column's value."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from pipelines.feeds.terms.columns import Column, Fault, amount, code, key, number, plain_text, reference
from pipelines.feeds.terms.times import Conventions, times_of

Converter = Callable[[str], object]

REMEMBERED = 4096
"""Ids and times of a column that are kept converted: they come again all over a file."""
LONGEST_REMEMBERED = 100
"""Characters: no id or time has more."""


def converter(column: Column, conventions: Conventions) -> Converter:
    """The function that turns a cell of this column into its value."""
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
    """Return the texts that were times to earlier versions, which took any day, and that are none today."""
    of_any_day = times_of(replace(conventions, takes_any_day=True))
    read = times_of(conventions)
    return [text for text in texts if isinstance(read(text), Fault) and not isinstance(of_any_day(text), Fault)]


def _remembering(convert: Converter) -> Converter:
    """Return the converter, with what it made of short texts kept."""
    kept = lru_cache(REMEMBERED)(convert)
    return lambda text: kept(text) if len(text) <= LONGEST_REMEMBERED else convert(text)


_CONVERTERS: dict[str, Converter] = {"key": key, "text": plain_text, "code": code}
