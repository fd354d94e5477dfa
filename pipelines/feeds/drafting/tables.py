"""Guess how a text of rows is written: delimiter, quotes, spaces, and the line of the header."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from pipelines.feeds.drafting.cells import is_value, most
from pipelines.feeds.terms.texts import DELIMITERS
from pipelines.feeds.terms.vocabulary import ID_WORDS, KIND_WORDS, words_of

ROWS = 300
RARE = ("^", "~", ":", " ")
FIRST_ROWS = 30
LONGEST_NAME = 400
Row = tuple[int, list[str]]


class WrittenForm(NamedTuple):
    """The form in which rows are written.

    agreement: the share of rows with the most frequent number of fields. rivals: other delimiters that fit.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    skip_spaces: bool = False
    rows: tuple[Row, ...] = ()
    agreement: float = 0.0
    width: int = 0
    rivals: tuple[str, ...] = ()


class HeaderPlace(NamedTuple):
    """The place of the header's row, None for none. is_sure: False if another row could be the header."""

    place: int | None
    is_sure: bool


def written_form(lines: Sequence[str]) -> WrittenForm:
    """Return the form of the rows. Its rivals would also split them into fields."""
    tried = [_read(lines, sign) for sign in DELIMITERS]
    best = max(tried, key=_fitness)
    if best.width < 2 and (rare := max((_read(lines, sign) for sign in RARE), key=_fitness)).agreement >= _SURE:
        best = rare if rare.width > (2 if rare.delimiter == " " else 1) else best
    best = max([best, *_variants(lines, best)], key=_fitness)
    rivals = (found for found in tried if found.delimiter != best.delimiter and found.width > 1)
    fitting = (found.delimiter for found in rivals if found.agreement >= best.agreement and _names(found))
    return best._replace(rivals=tuple(fitting))


_SURE = 0.9


def _names(found: WrittenForm) -> bool:
    """True if the rows have a header by this delimiter."""
    return found.rows[0][1] != [""] and len(found.rows[0][1]) == found.width and header_of(found.rows).place is not None


def _variants(lines: Sequence[str], best: WrittenForm) -> Iterator[WrittenForm]:
    """Yield the rows read with other quotes, escapes or spaces that the text contains; the best fit wins."""
    text, sign = "".join(lines[:ROWS]), re.escape(best.delimiter)
    spaced = best.delimiter != " " and len(re.findall(rf"{sign} +\"", text)) + _all_spaced(lines, best.delimiter)
    if spaced:
        yield _read(lines, best.delimiter, skip_spaces=True, bonus=True)
    if len(re.findall(rf"(?:^|{sign})'[^'\n]*'(?=\r?$|{sign})", text, re.MULTILINE)) >= max(2, len(lines) // 4):
        yield _read(lines, best.delimiter, quote="'", bonus=True)
    if re.search(r'\\"', text):
        yield _read(lines, best.delimiter, escape="\\", bonus=True)


def _all_spaced(lines: Sequence[str], sign: str) -> int:
    """Return the number of delimiters if a space follows each of them, else 0."""
    number = sum(line.count(sign) for line in lines[:FIRST_ROWS])
    return number if number == sum(line.count(f"{sign} ") for line in lines[:FIRST_ROWS]) else 0


def _fitness(found: WrittenForm) -> tuple[float, int]:
    return found.agreement if found.width > 1 else 0.0, found.width


def _read(lines: Sequence[str], sign: str, *, bonus: bool = False, **how: object) -> WrittenForm:
    """Return the rows read in this form. bonus: prefer the form over an equal fit, as its signs occur in the text."""
    asked = WrittenForm(sign, **how)  # type: ignore[arg-type]
    rows = tuple(_rows(lines, asked))
    if not rows:
        return asked
    width = width_of(rows)
    share = sum(len(cells) == width for _, cells in rows) / len(rows)
    return asked._replace(rows=rows, width=width, agreement=share + (0.001 if bonus else 0.0))


def _rows(lines: Sequence[str], asked: WrittenForm) -> Iterator[Row]:
    """Yield the first rows, each with the physical line that it begins on."""
    reader = csv.reader(
        io.StringIO("".join(lines), newline=""),
        delimiter=asked.delimiter,
        quotechar=asked.quote,
        escapechar=asked.escape or None,
        skipinitialspace=asked.skip_spaces,
    )
    before = 0
    try:
        for cells in islice(reader, ROWS):
            if cells:
                yield before + 1, cells
            before = reader.line_num
    except csv.Error:
        return


def width_of(rows: Sequence[Row]) -> int:
    """Return the number of fields that most rows have."""
    return Counter(len(cells) for _, cells in rows).most_common(1)[0][0]


# --- The header -----------------------------------------------------------------------------------


def header_of(rows: Sequence[Row]) -> HeaderPlace:
    """Return the row that names columns, after titles and lines of delimiters."""
    width = width_of(rows)
    likely = [place for place, (_, cells) in enumerate(rows[:FIRST_ROWS]) if _is_full(cells, width)]
    for number, place in enumerate(likely[:_TRIED]):
        names = [cell.strip() for cell in rows[place][1]]
        body = [cells for cells in _body(rows, place, width) if cells != rows[place][1]]
        if could_name(names) and not _again_below(names, body):
            if _tells(names, body) or (not body and len(names) > 1):
                if "" in names and (fuller := _fuller(rows, likely[number + 1 : _TRIED], width)):
                    return HeaderPlace(fuller, is_sure=False)
                return HeaderPlace(place, is_sure=not number)
            if not number and _all_texts(body) and _known(names):
                return HeaderPlace(place, is_sure=False)
    return HeaderPlace(None, is_sure=False)


def _fuller(rows: Sequence[Row], places: Sequence[int], width: int) -> int | None:
    """Return a lower row that names every column by known names. The row above it may be facts of a report."""
    for place in places:
        names = [cell.strip() for cell in rows[place][1]]
        body = [cells for cells in _body(rows, place, width) if cells != rows[place][1]]
        if all(names) and could_name(names) and _known(names) > 1 and _tells(names, body):
            return place
    return None


_TRIED = 5
"""The most rows that are tried as the header: titles may be as wide as rows."""


def _is_full(cells: Sequence[str], width: int) -> bool:
    return len(cells) == width and sum(bool(cell.strip()) for cell in cells) * 2 > width


def _body(rows: Sequence[Row], place: int, width: int) -> list[list[str]]:
    return [cells for _, cells in rows[place + 1 :] if len(cells) == width]


def could_name(names: Sequence[str]) -> bool:
    """True if texts could name columns: they differ, and none of them is a value."""
    words = [name for name in names if name]
    return bool(words) and not any(_is_no_name(word) for word in words) and _differ(words)


def _is_no_name(text: str) -> bool:
    """True for a value, a text too long for a name, or a period of days, as reports have above their tables."""
    dates = [part for part in text.split()[:5] if _DATED.search(part) and is_value(part.strip("(),;:"))]
    return is_value(text) or len(text) > LONGEST_NAME or bool(dates)


_DATED = re.compile(r"\d[-/.]\d+[-/.]\d")


def _differ(words: Sequence[str]) -> bool:
    """True if the names differ, or only a few repeat: a tracker has several columns `Labels`."""
    return len(set(words)) == len(words) or (len(set(words)) * 2 > len(words) and len(set(words)) > 2)


def _again_below(names: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """True if a text repeats below itself in a row of other texts, so that it is a value."""
    others = [[cell.strip() for cell in row] for row in body]
    return any(name and any(row[at] == name for row in others) for at, name in enumerate(names))


def _tells(names: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """True if the cells below are unlike these texts, or several texts are known names of columns."""
    if any(_unlike(name, cells) for name, cells in zip(names, zip(*body, strict=True), strict=False) if name):
        return True
    return _known(names) > 1


def _known(names: Sequence[str]) -> int:
    """Return the number of texts with a word that names of columns use."""
    known = {word for words in KIND_WORDS.values() for word in words} | ID_WORDS | {"date", "status", "patient", "name"}
    return sum(bool(known & set(words_of(name))) for name in names)


def _unlike(name: str, cells: Sequence[str]) -> bool:
    there = [cell.strip() for cell in cells if cell.strip()]
    figured = not re.search(r"\d", name) and most(there, re.compile(r".*\d").match)
    return bool(there) and (figured or most(there, is_value))


def _all_texts(body: Sequence[Sequence[str]]) -> bool:
    """True if no column has values, so that the cells cannot show which row is the header."""
    return bool(body) and not any(
        most([cell for cell in cells if cell.strip()], is_value) for cells in zip(*body, strict=True)
    )
