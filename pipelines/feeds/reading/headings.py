"""Rows that name the columns of another table than the header does, and titles above rows of another kind."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from pipelines.feeds.terms.totals import filled_cells, has_letters, is_title
from pipelines.feeds.terms.vocabulary import is_name

KNOWN_BY = 60
"""The number of rows from which the columns of values are found."""
LOOKED_AT = 20
"""The number of rows above and below a place that are compared."""
MOST_WORDS = 100
"""The most rows of words in a row that are passed over to find another row."""
Rows = Sequence[Sequence[str]]


class OfPayments(NamedTuple):
    """The places of the columns from which a feed of payments takes its key, amount and day.

    None for a value from several columns, or from none.
    """

    key: int | None = None
    amount: int | None = None
    day: int | None = None


IsApart = Callable[[int], bool]
"""True if a blank line is above a line."""


class Headings:
    """Finds rows that name the columns of another table.

    They have names of the header, or words in columns of values. For a row of words, the rows below decide, unless it
    names columns or follows a blank line alone. If the rows below continue the columns, the row of words is a record
    that cannot be read, or nothing. Rows are given in chunks.

    * payments: among payments, texts in most columns of values without any value begin another table, whatever is
      below. They may be a header in an unknown language.
    * alone: the lines of rows without a value that begin no other table.
    * unknown: the lines of rows that may be a header in an unknown language.
    """

    def __init__(self, header: Sequence[str], *, payments: "OfPayments | None" = None) -> None:
        self._header = [name.strip() for name in header]
        self._payments = payments
        self._names = frozenset(name for name in self._header if name)
        self._above: Rows = ()
        """The last rows of the chunk before."""
        self.alone: list[int] = []
        self.unknown: set[int] = set()
        self._waits: _WordRow | None = None
        """The first of the last rows, if these are words: the rows below it are not known yet."""

    def lines(self, rows: Rows, lines: Sequence[int], blank_above: IsApart) -> Iterator[int]:
        """Yield the lines of rows that name other columns than the header, or below which another table begins."""
        yield from (lines[place] for place in self._named_otherwise(rows))
        columns = _of_values([*self._above, *rows[:KNOWN_BY]], len(self._header))
        waiting, self._waits = self._waits, None
        if waiting and self._begins(waiting, rows):
            yield waiting.line
        for place in (_places_without_values if self._payments else _places_of_words)(rows, columns):
            above = rows[max(place - LOOKED_AT, 0) : place] or self._above
            words = _WordRow(lines[place], above, columns)
            is_apart = blank_above(words.line) and not (place and blank_above(lines[place - 1]))
            row, below = rows[place], rows[place + 1 :]
            if _has_words(row, columns) and (is_apart or _names_columns(row) or self._begins(words, below)):
                yield words.line
            elif self._payments and _may_be_header(row, above, columns, self._payments):
                self.unknown.add(words.line)
                yield words.line
            else:
                self.alone.append(words.line)
        self._above = rows[-LOOKED_AT:] or self._above

    def _begins(self, words: "_WordRow", below: Rows) -> bool:
        """True if the rows below a row of words do not continue the columns above. More such rows are passed over."""
        others = (row for row in below[:MOST_WORDS] if not _has_words(row, words.columns))
        if told_by := list(islice(others, LOOKED_AT)):
            columns = _of_values(words.above, len(self._header))
            return not goes_on(words.above, told_by, [column.place for column in columns])
        self._waits = self._waits or words
        return False

    def is_of_others(self, cells: Sequence[str]) -> bool:
        """True if a row with too many or too few cells has only names, and one of them is in the header."""
        texts = [cell.strip() for cell in cells if cell.strip()]
        return len(texts) > 1 and not self._names.isdisjoint(texts) and not any(map(is_value, texts))

    def _named_otherwise(self, rows: Rows) -> Iterator[int]:
        """Yield the places of rows with several names of the header, in a third of the cells or more, and no values.

        A row whose texts are all in their own column of the header continues the table.
        """
        is_apart = self._names.isdisjoint
        ticks: frozenset[str] | None = None
        for place, row in enumerate(rows):
            if not is_apart(row):
                named = self._names.intersection(row)
                if len(named) > 1 and len(named) * 3 >= filled_cells(row) and not self._has_values(row):
                    ticks = self._ticks(rows) if ticks is None else ticks
                    if self._is_other(row, ticks):
                        yield place

    def _has_values(self, row: Sequence[str]) -> bool:
        """True if a cell is no name: it is a number, or has digits like an id or a date."""
        return any(_NUMBER.fullmatch(cell) if cell in self._names else _is_figured(cell) for cell in row)

    def _is_other(self, row: Sequence[str], ticks: frozenset[str]) -> bool:
        """True if a row has several names of the header, except ticks, and a text outside its own column."""
        cells = [(cell.strip(), name) for cell, name in zip(row, self._header, strict=False)]
        named = {cell for cell, name in cells if cell in self._names and not (cell == name and cell in ticks)}
        return len(named) > 1 and any(cell and cell != name for cell, name in cells)

    def _ticks(self, rows: Rows) -> frozenset[str]:
        """Return the names of tick-box columns: several rows have the column's own name, and no row any other text."""
        columns = ((name, [row[at].strip() for row in rows if at < len(row)]) for at, name in enumerate(self._header))
        return frozenset(name for name, found in columns if name and found.count(name) > 1 and {*found} <= {name, ""})


_TELLING = 2
"""The least number of columns of values in which a row must have words, and no value, to name other columns."""
_TELLING_OF_PAYMENTS = 3


class _ValueColumn(NamedTuple):
    """A column of values. width: the length of all its values, as of ids with letters; 0 if the lengths differ.

    are_lettered: True if most values begin with a letter.
    """

    place: int
    width: int
    are_lettered: bool

    def cell(self, row: Sequence[str]) -> str:
        return row[self.place].strip() if self.place < len(row) else ""


class _WordRow(NamedTuple):
    """A row of words, with some rows above it and the columns of values."""

    line: int
    above: Rows
    columns: Sequence[_ValueColumn]


def _of_values(rows: Rows, width: int) -> list[_ValueColumn]:
    """Return the columns with values in most of their cells; columns whose values begin with no letter come first."""
    found: list[tuple[int, _ValueColumn]] = []
    for place in range(width):
        cells = [row[place].strip() for row in rows if place < len(row) and row[place].strip()]
        values = [cell for cell in cells if is_value(cell)]
        if len(values) * 2 > len(cells):
            lengths = {*map(len, values)}
            alike = lengths.pop() if len(lengths) == 1 and any(map(has_letters, values)) else 0
            lettered = sum(cell[0].isalpha() for cell in values)
            found.append((lettered, _ValueColumn(place, alike, lettered * 2 > len(values))))
    return [column for _, column in sorted(found)]


def _places_of_words(rows: Rows, columns: Sequence[_ValueColumn]) -> Iterator[int]:
    """Yield the places of rows that have words, and no digits, in columns of values."""
    if len(columns) < _TELLING:
        return
    first = columns[0].place
    for place, row in enumerate(rows):
        if row[first][:1].isalpha() and _has_words(row, columns):
            yield place


def _has_words(row: Sequence[str], columns: Sequence[_ValueColumn]) -> bool:
    """True if a row has words, and no digits, in several columns of values.

    A text as long as all values of its column may itself be a value, since some ids have few digits, or none.
    """
    cells = [(cell, column) for column in columns if column.place < len(row) and (cell := row[column.place].strip())]
    return (
        sum(len(cell) != column.width for cell, column in cells) >= _TELLING
        and not any(map(_is_figured, row))
        and all(_is_name(cell) for cell, _ in cells)
    )


def _places_without_values(rows: Rows, columns: Sequence[_ValueColumn]) -> Iterator[int]:
    """Yield the places of rows that have texts in several columns of values, and no value in any of them."""
    if len(columns) < _TELLING:
        return
    first = columns[0].place
    for place, row in enumerate(rows):
        if row[first][:1].isalpha() or not row[first][-1:].isdigit():  # most amounts and dates are neither
            texts = [(text, column) for column in columns if (text := column.cell(row))]
            if len(texts) >= _TELLING and all(_is_label(text, column) for text, column in texts):
                yield place


def _is_label(text: str, column: _ValueColumn) -> bool:
    """True if a text is no value of its column, and may name it: `#`, `Nr 1`, or `K2` if no value looks like `R2`."""
    if not any(map(str.isdigit, text)):
        return True
    if _NUMBERED_LABEL.fullmatch(text):
        return not (column.are_lettered and is_value(text))
    return not _is_figured(text)


def _may_be_header(row: Sequence[str], above: Rows, columns: Sequence[_ValueColumn], payments: OfPayments) -> bool:
    """True if a row without values may be a header: texts in three or more columns of values, most of them words.

    The texts must be in most columns of values. No record has only such texts, unless it is crossed out, or all its
    texts are equal. Two columns are enough if they are the amount and the day, the key is unlike the keys above, and
    there is a third text.
    """
    texts = [(text, column.width) for column in columns if (text := column.cell(row))]
    words = {text.strip(_SIGNS).lower() for text, _ in texts}
    return (
        (len(texts) >= _TELLING_OF_PAYMENTS or _has_no_payment(row, above, columns, payments))
        and len(texts) * 2 > len(columns)
        and sum(len(text) != width for text, width in texts) >= _TELLING
        and sum(has_letters(text) and text.lower() not in _NOTHING for text, _ in texts) * 2 > len(texts)
        and len(words) > 1
        and words.isdisjoint(_CROSSED_OUT)
        and not any(
            map(is_value, {*row}.difference(row[column.place] for column in columns if column.place < len(row)))
        )
    )


def _has_no_payment(row: Sequence[str], above: Rows, columns: Sequence[_ValueColumn], payments: OfPayments) -> bool:
    """True if a row has words for an amount and a day, another text, and a key unlike those of the rows above.

    A header's texts do not occur above it in their column. If the key is empty, all texts must be known names of
    columns, or single capitalized words. The texts of `,Jane Doe,no charge,same day` are not.
    """
    key, amount, day = payments
    of_values = {column.place for column in columns}
    if key is None or amount is None or day is None or not {amount, day} <= of_values or amount == day:
        return False
    cells = [row[place].strip() if place < len(row) else "" for place in (key, amount, day)]
    keys = {len(other[key].strip()) for other in above if key < len(other)}
    is_keyed = bool(cells[0]) and key not in of_values and (len(keys) != 1 or len(cells[0]) in keys)
    if is_keyed or not all(cells[1:]) or filled_cells(row) < _TELLING_OF_PAYMENTS:
        return False
    if any(cell.strip() and _stands_above(cell.strip(), place, above) for place, cell in enumerate(row)):
        return False
    return bool(cells[0]) or all(_is_name_of_column(cell.strip()) for cell in row if cell.strip())


def _is_name_of_column(text: str) -> bool:
    """True if a text is a known name, or a word that does not begin with a lower-case letter."""
    return is_name(text) or (text.isalpha() and not text[0].islower())


def _stands_above(text: str, place: int, above: Rows) -> bool:
    return any(place < len(other) and other[place].strip() == text for other in above)


_SIGNS = "*()[]<>-.!:/ "
_CROSSED_OUT = frozenset("void voided cancelled canceled waived continued x".split())
"""Words of a record that was taken back or charged nothing, and of the end of a page."""


def _names_columns(row: Sequence[str]) -> bool:
    """True if several of a row's words, and at least half of them, are like names of columns."""
    words = [cell for cell in row if cell.strip()]
    known = sum(map(is_name, words))
    return known > 1 and known * 2 >= len(words)


def _is_name(text: str) -> bool:
    """True if a text may be a name; a word for nothing is none."""
    return has_letters(text) and not is_value(text) and text.lower() not in _NOTHING


_NOTHING = frozenset("na n/a null none nil nan unknown tbd - pending".split())


def _is_figured(text: str) -> bool:
    """True if a text has digits, except after words as in `icd10`, `Address 2` and `Fee 2024`."""
    return any(map(str.isdigit, text)) and not _NUMBERED_NAME.fullmatch(text.strip())


_NUMBER = re.compile(r"[\W_]*\d[\W\d_]*")
_NUMBERED_LABEL = re.compile(r"[^\W\d]+\.?(?: [^\W\d]+)*\W{0,2}\d{1,2}\W?")
_NUMBERED_NAME = re.compile(r"[^\W\d]{3,}(?: [^\W\d]+)*(?: ?\d{1,2}| (?:19|20)\d\d)")


def is_heading_of_rows(cells: Sequence[str], usual: int, *, is_apart: bool) -> bool:
    """True if a line between rows is a title of the rows below it, and no note on the row above.

    A title is short, has no digits, and begins the line. It begins with a capital, or a blank line is above it.

    Args:
        usual: the number of cells that a record fills.
        is_apart: True if a blank line is above the line.
    """
    first = cells[0].strip() if cells else ""
    words = _WORD.findall(first)
    if not 0 < len(words) <= _LONGEST_TITLE or first[-1] in ".!?;" or not is_title(cells):
        return False
    if filled_cells(cells) * 2 > usual or any(sign.isdigit() for cell in cells for sign in cell):
        return False
    return is_apart or not words[0][0].islower()


_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_LONGEST_TITLE = 4


# --- The forms of cells, by which rows continue the columns above ---------------------------------


def goes_on(above: Rows, below: Rows, columns: Sequence[int]) -> bool:
    """True if rows continue columns: in no column do the forms of the values change.

    The first value counts, since a table of few rows ends among the rows compared. All values together count too.
    """
    return not any(_is_other(_forms(above, place), _forms(below, place)) for place in columns)


def is_value(text: str) -> bool:
    """True if a text has digits, and at least as many as letters: a number, an amount, a date, an id."""
    digits = sum(map(str.isdigit, text))
    return digits > 0 and digits >= sum(map(str.isalpha, text))


def _is_other(above: list[str], below: list[str]) -> bool:
    """True if the first form of a column, or all forms, differ from those above. Forms that vary show nothing."""
    known = set(above) - {""}
    tells = known and (len(known) == 1 or len(known) * 2 <= len(above))
    first = next(filter(None, below), "")
    return bool(tells and below) and (known.isdisjoint(below) or (first != "" and first not in known))


def _forms(rows: Rows, place: int) -> list[str]:
    """Return the forms of a column's cells; the form of a text that is no value is empty."""
    cells = (row[place].strip() for row in rows if place < len(row))
    return [_form(cell) for cell in cells if cell]


@lru_cache(maxsize=4096)
def _form(cell: str) -> str:
    """Return the form of a cell: `9` for a number, `9-9-9` for a date, `R9` for an id; empty for a text."""
    if not is_value(cell):
        return ""
    if _PLAIN_NUMBER.fullmatch(cell):
        return "9"
    prefix = _PREFIX.match(cell)
    return (prefix[0] if prefix else "") + _RUN.sub(
        lambda run: "9" if run[0].isdigit() else "a", cell[prefix.end() if prefix else 0 :]
    )


_PLAIN_NUMBER = re.compile(r"[^\w.,]*(?:\d{1,3}(?:[., '\u00a0\u2019]\d{3})+|\d+)(?:[.,]\d*)?[^\w.,]*")
_PREFIX = re.compile(r"[^\W\d_]+(?=[-_./#]?\d)")
_RUN = re.compile(r"\d+|[^\W\d_]+")
