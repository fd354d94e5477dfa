"""Rows that name the columns of another table than the header does, and titles above rows of another kind."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipelines.feeds.terms.totals import filled, is_title

LOOKED_AT = 60
"""Rows of a chunk by which its columns are known."""


class Headings:
    """Finds such rows by the names of a header, and by columns that have values where these rows have names."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header = [name.strip() for name in header]
        self._names = frozenset(name for name in self._header if name)

    def places(self, rows: Sequence[Sequence[str]]) -> Iterator[int]:
        """The places of rows that name columns otherwise than the header, or other ones."""
        yield from self._named_otherwise(rows)
        figured = _figured(rows, len(self._header))
        if len(figured) >= _TELLING:
            first = figured[0].place
            for place, row in enumerate(rows):
                if row[first][:1].isalpha() and _has_names(row, figured):
                    yield place

    def is_of_others(self, cells: Sequence[str]) -> bool:
        """True if a row with too many or too few cells has names alone, and one of the header among them."""
        texts = [cell.strip() for cell in cells if cell.strip()]
        return len(texts) > 1 and not self._names.isdisjoint(texts) and not any(map(is_value, texts))

    def _named_otherwise(self, rows: Sequence[Sequence[str]]) -> Iterator[int]:
        """The places of rows with several names of the header, no fewer than a third of the cells, and no values. A
        row that has no other texts than the header at any place goes on with its columns.
        """
        is_apart = self._names.isdisjoint
        ticks: frozenset[str] | None = None
        for place, row in enumerate(rows):
            if not is_apart(row):
                named = self._names.intersection(row)
                if len(named) > 1 and len(named) * 3 >= filled(row) and not self._has_values(row):
                    ticks = self._ticks(rows) if ticks is None else ticks
                    if self._is_other(row, ticks):
                        yield place

    def _has_values(self, row: Sequence[str]) -> bool:
        """True if a cell is no name: it is a number, or has digits as an id or a date has them."""
        return any(_NUMBER.fullmatch(cell) if cell in self._names else _is_figured(cell) for cell in row)

    def _is_other(self, row: Sequence[str], ticks: frozenset[str]) -> bool:
        """True if a row has several names of the header that are no ticks, and not all of its texts where they are."""
        cells = [(cell.strip(), name) for cell, name in zip(row, self._header, strict=False)]
        named = {cell for cell, name in cells if cell in self._names and not (cell == name and cell in ticks)}
        return len(named) > 1 and any(cell and cell != name for cell, name in cells)

    def _ticks(self, rows: Sequence[Sequence[str]]) -> frozenset[str]:
        """The names of columns in which their own name stands in several rows, and nothing else: a box to tick."""
        columns = ((name, [row[at].strip() for row in rows if at < len(row)]) for at, name in enumerate(self._header))
        return frozenset(name for name, found in columns if name and found.count(name) > 1 and {*found} <= {name, ""})


_TELLING = 2
"""Columns of values: a row that has none in any of them, and names in so many, is no record of the table."""


class _Values(NamedTuple):
    """A column of values. width: the length that all of them have, as ids may have; 0 if they differ."""

    place: int
    width: int


def _figured(rows: Sequence[Sequence[str]], width: int) -> list[_Values]:
    """The columns with values in most of their cells, those first whose values begin with no letter."""
    found: list[tuple[int, _Values]] = []
    for place in range(width):
        cells = [row[place].strip() for row in rows[:LOOKED_AT] if place < len(row) and row[place].strip()]
        values = [cell for cell in cells if is_value(cell)]
        if len(values) * 2 > len(cells):
            lengths = {*map(len, values)}
            alike = lengths.pop() if len(lengths) == 1 else 0
            found.append((sum(cell[0].isalpha() for cell in values), _Values(place, alike)))
    return [column for _, column in sorted(found)]


def _has_names(row: Sequence[str], columns: Sequence[_Values]) -> bool:
    """True if a row has names, and no figures, in columns of values: in several of them. What has the length of all
    values of its column is one: some ids have few digits, or none.
    """
    cells = [(cell, column) for column in columns if column.place < len(row) and (cell := row[column.place].strip())]
    return (
        len(cells) >= _TELLING
        and not any(map(_is_figured, row))
        and all(_is_name(cell) and len(cell) != column.width for cell, column in cells)
    )


def is_value(text: str) -> bool:
    """True if a text has digits, and no fewer of them than letters: a number, an amount, a date, an id."""
    digits = sum(map(str.isdigit, text))
    return digits > 0 and digits >= sum(map(str.isalpha, text))


def _is_name(text: str) -> bool:
    """True if a text may name a column; a word for nothing does not."""
    return any(map(str.isalpha, text)) and not is_value(text) and text.lower() not in _NOTHING


_NOTHING = frozenset("na n/a null none nil nan unknown tbd - pending".split())


def _is_figured(text: str) -> bool:
    """True if a text has digits, other than behind words as `icd10`, `Address 2` and `Fee 2024` have them."""
    return any(map(str.isdigit, text)) and not _NUMBERED_NAME.fullmatch(text.strip())


_NUMBER = re.compile(r"[\W_]*\d[\W\d_]*")
_NUMBERED_NAME = re.compile(r"[^\W\d]{3,}(?: [^\W\d]+)*(?: ?\d{1,2}| (?:19|20)\d\d)")


def is_heading_of_rows(cells: Sequence[str], usual: int, *, is_apart: bool) -> bool:
    """True if a line between rows is a title of those below it, and no note to the one above.

    A title is short and has no figures, begins the line, and begins with a capital or stands apart.

    Args:
        usual: how many cells a record fills.
        is_apart: whether a blank line is above it.
    """
    first = cells[0].strip() if cells else ""
    words = _WORD.findall(first)
    if not 0 < len(words) <= _LONGEST_TITLE or first[-1] in ".!?;" or not is_title(cells):
        return False
    if filled(cells) * 2 > usual or any(sign.isdigit() for cell in cells for sign in cell):
        return False
    return is_apart or not words[0][0].islower()


_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_LONGEST_TITLE = 4
