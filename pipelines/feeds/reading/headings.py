"""Rows that name the columns of another table than the header does, and titles above rows of another kind."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from pipelines.feeds.terms.totals import filled, has_letters, is_title
from pipelines.feeds.terms.vocabulary import is_name

KNOWN_BY = 60
"""Rows by which the columns of values are known."""
LOOKED_AT = 20
"""Rows above and below a place by which it is told whether they go on with the columns."""
MOST_WORDS = 100
"""Rows of words in a row, below which no other is looked for at once."""
Rows = Sequence[Sequence[str]]


class OfPayments(NamedTuple):
    """The places of the columns that a feed of payments takes its key, amount and day from; None for one that is made
    of several, or of none.
    """

    key: int | None = None
    amount: int | None = None
    day: int | None = None


IsApart = Callable[[int], bool]
"""True if a blank line is above a line."""


class Headings:
    """Finds such rows by the names of a header, and by columns that have values where these rows have words.

    What the rows below a row of words are decides of it, unless it names columns or alone stands below a blank line: if
    they go on with the columns, it is a record that cannot be read, or nothing. Rows are given some thousand at a time.

    payments: among payments, names in most columns of values, and no value in any, begin another table whatever is
    below: they may be a header in a language that nobody here knows. alone: the lines of rows without a value that
    begin no other table. unknown: those of rows that may be such a header.
    """

    def __init__(self, header: Sequence[str], *, payments: "OfPayments | None" = None) -> None:
        self._header = [name.strip() for name in header]
        self._payments = payments
        self._names = frozenset(name for name in self._header if name)
        self._above: Rows = ()
        """The last rows that were given before."""
        self.alone: list[int] = []
        self.unknown: set[int] = set()
        self._waits: _Words | None = None
        """The first of the last rows, if these are words: what is below it is not known yet."""

    def lines(self, rows: Rows, lines: Sequence[int], blank_above: IsApart) -> Iterator[int]:
        """The lines of rows that name columns otherwise than the header, or below which another table begins."""
        yield from (lines[place] for place in self._named_otherwise(rows))
        columns = _of_values([*self._above, *rows[:KNOWN_BY]], len(self._header))
        waiting, self._waits = self._waits, None
        if waiting and self._begins(waiting, rows):
            yield waiting.line
        for place in (_places_without_values if self._payments else _places_of_words)(rows, columns):
            above = rows[max(place - LOOKED_AT, 0) : place] or self._above
            words = _Words(lines[place], above, columns)
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

    def _begins(self, words: "_Words", below: Rows) -> bool:
        """True if the rows below a row of words do not go on with the columns above. Other such rows tell nothing."""
        others = (row for row in below[:MOST_WORDS] if not _has_words(row, words.columns))
        if told_by := list(islice(others, LOOKED_AT)):
            columns = _of_values(words.above, len(self._header))
            return not goes_on(words.above, told_by, [column.place for column in columns])
        self._waits = self._waits or words
        return False

    def is_of_others(self, cells: Sequence[str]) -> bool:
        """True if a row with too many or too few cells has names alone, and one of the header among them."""
        texts = [cell.strip() for cell in cells if cell.strip()]
        return len(texts) > 1 and not self._names.isdisjoint(texts) and not any(map(is_value, texts))

    def _named_otherwise(self, rows: Rows) -> Iterator[int]:
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

    def _ticks(self, rows: Rows) -> frozenset[str]:
        """The names of columns in which their own name stands in several rows, and nothing else: a box to tick."""
        columns = ((name, [row[at].strip() for row in rows if at < len(row)]) for at, name in enumerate(self._header))
        return frozenset(name for name, found in columns if name and found.count(name) > 1 and {*found} <= {name, ""})


_TELLING = 2
"""Columns of values: a row that has none in any of them, and words in so many, may name others."""
_TELLING_OF_PAYMENTS = 3


class _Values(NamedTuple):
    """A column of values. width: the length that all have, as ids with letters may have; 0 if they differ.
    are_lettered: most of them begin with a letter.
    """

    place: int
    width: int
    are_lettered: bool

    def cell(self, row: Sequence[str]) -> str:
        return row[self.place].strip() if self.place < len(row) else ""


class _Words(NamedTuple):
    """A row of words, with some rows above it and the columns of values."""

    line: int
    above: Rows
    columns: Sequence[_Values]


def _of_values(rows: Rows, width: int) -> list[_Values]:
    """The columns with values in most of their cells, those first whose values begin with no letter."""
    found: list[tuple[int, _Values]] = []
    for place in range(width):
        cells = [row[place].strip() for row in rows if place < len(row) and row[place].strip()]
        values = [cell for cell in cells if is_value(cell)]
        if len(values) * 2 > len(cells):
            lengths = {*map(len, values)}
            alike = lengths.pop() if len(lengths) == 1 and any(map(has_letters, values)) else 0
            lettered = sum(cell[0].isalpha() for cell in values)
            found.append((lettered, _Values(place, alike, lettered * 2 > len(values))))
    return [column for _, column in sorted(found)]


def _places_of_words(rows: Rows, columns: Sequence[_Values]) -> Iterator[int]:
    """The places of rows that have words in columns of values, and no figures."""
    if len(columns) < _TELLING:
        return
    first = columns[0].place
    for place, row in enumerate(rows):
        if row[first][:1].isalpha() and _has_words(row, columns):
            yield place


def _has_words(row: Sequence[str], columns: Sequence[_Values]) -> bool:
    """True if a row has words, and no figures, in columns of values: in several of them. What has the length of all
    values of its column may be one: some ids have few digits, or none.
    """
    cells = [(cell, column) for column in columns if column.place < len(row) and (cell := row[column.place].strip())]
    return (
        sum(len(cell) != column.width for cell, column in cells) >= _TELLING
        and not any(map(_is_figured, row))
        and all(_is_name(cell) for cell, _ in cells)
    )


def _places_without_values(rows: Rows, columns: Sequence[_Values]) -> Iterator[int]:
    """The places of rows that have texts in several columns of values, and in none a value of its own."""
    if len(columns) < _TELLING:
        return
    first = columns[0].place
    for place, row in enumerate(rows):
        if row[first][:1].isalpha() or not row[first][-1:].isdigit():  # most amounts and dates are neither
            texts = [(text, column) for column in columns if (text := column.cell(row))]
            if len(texts) >= _TELLING and all(_is_label(text, column) for text, column in texts):
                yield place


def _is_label(text: str, column: _Values) -> bool:
    """True if a text is no value of its column, and may name it: `#`, `Nr 1`, and `K2` where no value is like `R2`."""
    if not any(map(str.isdigit, text)):
        return True
    if _NUMBERED_LABEL.fullmatch(text):
        return not (column.are_lettered and is_value(text))
    return not _is_figured(text)


def _may_be_header(row: Sequence[str], above: Rows, columns: Sequence[_Values], payments: OfPayments) -> bool:
    """True if a row without values has texts in three columns of values or more, and in most of them; most are words.

    No record has nothing but these, unless it is crossed out, or says the same in all. Two such columns tell where they
    are those of the amount and the day, the key is none of the rows above, and there is a third text.
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


def _has_no_payment(row: Sequence[str], above: Rows, columns: Sequence[_Values], payments: OfPayments) -> bool:
    """True if a row has words for an amount and a day, another text, and no key as those of the rows above are.

    None of a header's texts stands above it in its column. Where the key is empty, all are names of columns that are
    known, or single words with a capital: those of `,Jane Doe,no charge,same day` are not.
    """
    key, amount, day = payments
    of_values = {column.place for column in columns}
    if key is None or amount is None or day is None or not {amount, day} <= of_values or amount == day:
        return False
    cells = [row[place].strip() if place < len(row) else "" for place in (key, amount, day)]
    keys = {len(other[key].strip()) for other in above if key < len(other)}
    is_keyed = bool(cells[0]) and key not in of_values and (len(keys) != 1 or len(cells[0]) in keys)
    if is_keyed or not all(cells[1:]) or filled(row) < _TELLING_OF_PAYMENTS:
        return False
    if any(cell.strip() and _stands_above(cell.strip(), place, above) for place, cell in enumerate(row)):
        return False
    return bool(cells[0]) or all(_is_name_of_column(cell.strip()) for cell in row if cell.strip())


def _is_name_of_column(text: str) -> bool:
    """True if a text is a known name, or a word that begins with no small letter."""
    return is_name(text) or (text.isalpha() and not text[0].islower())


def _stands_above(text: str, place: int, above: Rows) -> bool:
    return any(place < len(other) and other[place].strip() == text for other in above)


_SIGNS = "*()[]<>-.!:/ "
_CROSSED_OUT = frozenset("void voided cancelled canceled waived continued x".split())
"""Words of a record that was taken back or charged nothing, and of a page's end."""


def _names_columns(row: Sequence[str]) -> bool:
    """True if several of the words of a row, and no fewer than half of them, are like names of columns."""
    words = [cell for cell in row if cell.strip()]
    known = sum(map(is_name, words))
    return known > 1 and known * 2 >= len(words)


def _is_name(text: str) -> bool:
    """True if a text may be a name; a word for nothing is none."""
    return has_letters(text) and not is_value(text) and text.lower() not in _NOTHING


_NOTHING = frozenset("na n/a null none nil nan unknown tbd - pending".split())


def _is_figured(text: str) -> bool:
    """True if a text has digits, other than behind words as `icd10`, `Address 2` and `Fee 2024` have them."""
    return any(map(str.isdigit, text)) and not _NUMBERED_NAME.fullmatch(text.strip())


_NUMBER = re.compile(r"[\W_]*\d[\W\d_]*")
_NUMBERED_LABEL = re.compile(r"[^\W\d]+\.?(?: [^\W\d]+)*\W{0,2}\d{1,2}\W?")
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


# --- The forms of cells, by which rows go on with the columns above ---------------------------------


def goes_on(above: Rows, below: Rows, columns: Sequence[int]) -> bool:
    """True if rows go on with columns: in none is the first value of another form than those above, nor are all, or
    none values. By the first, since a table of few rows ends among those that are looked at.
    """
    return not any(_is_other(_forms(above, place), _forms(below, place)) for place in columns)


def is_value(text: str) -> bool:
    """True if a text has digits, and no fewer of them than letters: a number, an amount, a date, an id."""
    digits = sum(map(str.isdigit, text))
    return digits > 0 and digits >= sum(map(str.isalpha, text))


def _is_other(above: list[str], below: list[str]) -> bool:
    """True if the first form of a column, or all, differ from those above. Ever new forms, as of ids, tell nothing."""
    known = set(above) - {""}
    tells = known and (len(known) == 1 or len(known) * 2 <= len(above))
    first = next(filter(None, below), "")
    return bool(tells and below) and (known.isdisjoint(below) or (first != "" and first not in known))


def _forms(rows: Rows, place: int) -> list[str]:
    """The forms of a column's cells; that of a text which is no value is empty."""
    cells = (row[place].strip() for row in rows if place < len(row))
    return [_form(cell) for cell in cells if cell]


@lru_cache(maxsize=4096)
def _form(cell: str) -> str:
    """`9` of a number, `9-9-9` of a date, `R9` of an id; empty for a text that is no value."""
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
