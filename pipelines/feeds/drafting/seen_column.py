"""A column of an export as it was seen: its name, and the look of its cells."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipelines.feeds.drafting.cells import (
    are_day_counts,
    are_unix_times,
    clock_format,
    date_formats,
    has_offset,
    is_iso,
    most,
    number_formats,
)
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.mapping.chunk import single
from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.feeds.terms.paths import parse_path, walk_path
from pipelines.feeds.terms.vocabulary import words_of

FEW = 12
LOOKED_AT = 100
SHORT = 40
_WRAPPER = re.compile(r"(?:(?:attributes|data|fields|node|payload|properties)\.)+")
"""Objects around all values of a record, as APIs and table exports write them: their names mean nothing."""
Look = Literal["nothing", "time", "clock", "number", "link", "text"]


@dataclass(frozen=True, eq=False)
class SeenColumn:
    """A column of an export.

    * name: the column's name in the feed file.
    * label: its name in the export, without an object around all values.
    * dates: formats of dates; those that fit equally well are in one tuple.
    * numbers: formats of numbers that fit equally well.
    * days: True if the numbers may be a spreadsheet's days.
    * is_unix: True if the numbers may be times since 1970.
    * distinct: the number of different texts.
    * first_of: the list from which only the first value is read, if some objects have several values in it.
    """

    name: str
    label: str
    cells: tuple[str, ...]
    rows: int
    iso: bool
    dates: tuple[tuple[str, ...], ...]
    clock: str | None
    numbers: tuple[NumberFormat, ...]
    days: bool
    is_unix: bool
    distinct: int
    first_of: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return words_of(self.label)

    @property
    def is_filled(self) -> bool:
        return len(self.cells) == self.rows > 0

    @property
    def is_key(self) -> bool:
        """True if each row has a text of its own."""
        return self.is_filled and self.distinct == self.rows > 1

    @property
    def is_nearly_key(self) -> bool:
        """True if most rows have a text of their own, and the others are empty, as totals between the rows are."""
        return self.distinct == len(self.cells) > self.rows / 2

    @property
    def is_constant(self) -> bool:
        return self.distinct == 1 and self.rows > 1

    @property
    def is_time(self) -> bool:
        return self.iso or bool(self.dates)

    @property
    def lacks_offset(self) -> bool:
        """True if some cell has a time of day, and no cell has an offset from UTC."""
        if not self.iso:
            return any(re.search("%[HIXc]", form) and "%z" not in form for alike in self.dates for form in alike)
        return any(len(cell) > 10 and not has_offset(cell) for cell in self.cells)

    @property
    def look(self) -> Look:
        """Return the kind of the cells."""
        if not self.cells:
            return "nothing"
        if self.is_time:
            return "time"
        if self.clock:
            return "clock"
        if self.numbers:
            return "number"
        return "link" if most(self.cells, re.compile(r"https?://").match) else "text"

    @property
    def codes(self) -> tuple[str, ...]:
        """Return the texts of a column that distinguishes kinds of rows: few, short, and more than one; else none."""
        short = all(len(cell) <= SHORT for cell in self.cells)
        return tuple(sorted(set(self.cells))) if self.is_coded and short else ()

    @property
    def is_coded(self) -> bool:
        """True if a few texts repeat often."""
        return 1 < self.distinct <= FEW and self.distinct * 2 <= len(self.cells) and not (self.is_time or self.clock)


def columns_of(export: Export) -> list[SeenColumn]:
    """Return the columns of an export, in their order."""
    if export.is_objects:
        cells: dict[str, list[str]] = {}
        for row in export.objects:
            for name, text in _flat(row):
                cells.setdefault(name, []).append(text)
        return [
            replace(_seen(name, _label(name), texts, len(export.objects)), first_of=_first_of(name, export.objects))
            for name, texts in cells.items()
        ]
    found: list[SeenColumn] = []
    for place, name in enumerate(export.names):
        own = export.name_of(place)
        found.append(_seen(own, name or own, export.column(place), len(export.rows)))
    return found


def seen_together(first: SeenColumn, second: SeenColumn, export: Export) -> SeenColumn:
    """Return two columns joined row by row with a space: a date and its time of day."""
    places = [export.names.index(seen.label) for seen in (first, second)]
    rows = [[row[place].strip() for place in places if place < len(row)] for row in export.rows]
    joined = [" ".join(filter(None, cells)) for cells in rows]
    return _seen(first.name, first.label, [text for text in joined if text], len(rows))


def _seen(name: str, label: str, cells: Sequence[str], rows: int) -> SeenColumn:
    iso = most(cells, is_iso)
    dates = () if iso else tuple(date_formats(cells[:LOOKED_AT]))
    if len(cells) > LOOKED_AT and any(len(alike) > 1 for alike in dates):
        dates = tuple(date_formats(cells))  # a later day of the month may decide the format
    clock = None if iso or dates else clock_format(cells[:LOOKED_AT])
    numbers = () if iso or dates or clock else tuple(number_formats(cells))
    days, is_unix = (bool(numbers) and told(cells) for told in (are_day_counts, are_unix_times))
    return SeenColumn(name, label, tuple(cells), rows, iso, dates, clock, numbers, days, is_unix, len(Counter(cells)))


def _label(path: str) -> str:
    """Return the name of a value without the objects around all values."""
    around = _WRAPPER.match(path)
    return path[around.end() :] if around else path


def _first_of(path: str, objects: Sequence[object]) -> str:
    """Return the path of a list in a path that has several values in some objects; empty if there is none."""
    for place in re.finditer(r"\[0\]", path):
        whole = parse_path(path[: place.start()])
        found = (walk_path(each, whole) for each in objects)
        if any(isinstance(values, list) and len(values) > 1 for values in found):
            return path[: place.start()]
    return ""


def _flat(found: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the single values of an object as texts, by path, without names that a path cannot contain."""
    if isinstance(found, dict):
        for name, part in found.items():
            if all(name.split(".")) and not re.search(r"[\[\]]", name):
                yield from _flat(part, f"{path}.{name}" if path else name)
    elif isinstance(found, list):
        if path and found and isinstance(found[0], dict):
            yield from _flat(found[0], f"{path}[0]")
        elif path and found:
            yield path, _text(found[0])
    elif found is not None and path:
        yield path, _text(found)


def _text(found: object) -> str:
    """Return a value as conditions and `values` of a feed compare it: `true`, not Python's True."""
    return found if isinstance(found, str) else str(single(found))
