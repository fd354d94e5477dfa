"""Guess from the cells of a column: dates and their formats, times of day, days of a spreadsheet, amounts."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date
from functools import cache, partial

from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.feeds.terms.times import EXCEL_DAYS, Conventions, reader_of_form, time

DAYS = (
    *("%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%m-%d-%Y", "%d-%m-%Y", "%d-%b-%Y", "%d-%b-%y", "%d/%b/%y", "%d/%b/%Y", "%d %b %Y", "%b %d, %Y", "%b %d %Y"),
    *("%d %B %Y", "%B %d, %Y", "%a, %d %b %Y", "%Y-%m-%d"),
)
HOURS = (
    *("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", ", %I:%M %p", ", %I:%M:%S %p"),
    *("T%H:%M:%S", "%H%M%S", " %H:%M:%S.%f", " %H:%M:%S UTC", " %H:%M UTC", " %H:%M:%S %z", " - %H:%M"),
)
CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M %p", "%I:%M:%S %p")
MOST = 0.8
"""The share of cells that must fit. It is below 1, since an export has bad cells too."""
_TIMES = Conventions(UTC)
_FORMATS = 3
_SHAPES = 12
_SIGN = re.compile(r"[^\d\s.,()+\-\u2212'\u2019\u00a0\u202f\x00-\x1f]+")
_CODES = "USD EUR CHF GBP CAD AUD NZD JPY CNY INR SEK NOK DKK PLN CZK MXN BRL ZAR HKD SGD US Fr SFr kr R".split()
_MARK = rf"(?:(?:{'|'.join(_CODES)})\$?|[A-Z]{{1,3}}\$|[^\w\s.,()+\-]{{1,2}})"
_AMOUNT = re.compile(rf"[(+\-\u2212]?\s*+(?:{_MARK}\s*+)?[+\-]?\d[\d.,' \u00a0\u202f]*+\)?\s*+(?:{_MARK})?-?\)?")
_DAY_COUNT = re.compile(r"\d{5}(?:\.\d+)?", re.ASCII)


def is_value(text: str) -> bool:
    """True if a text cannot name a column: a number, an amount, a date, or an e-mail address."""
    text = text.strip()
    numbered = bool(_AMOUNT.fullmatch(text)) and text[-1:].isalnum()
    return numbered or bool(date_formats([text])) or is_iso(text) or bool(re.fullmatch(r"\S+@\S+", text))


def is_iso(text: str) -> bool:
    """True if a text is an ISO 8601 date or datetime."""
    return not isinstance(time(text, _TIMES), ValueFault)


def has_offset(text: str) -> bool:
    """True if an ISO 8601 time has an offset from UTC."""
    return bool(re.search(r"\d(?:[Zz]|[+-]\d\d:?(?:\d\d)?)$", text.strip()[11:]))


def most(cells: Sequence[str], fits: Callable[[str], object]) -> bool:
    """True if there are cells and nearly all of them fit."""
    return bool(cells) and sum(bool(fits(cell)) for cell in cells) >= MOST * len(cells)


def date_formats(cells: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the formats by which nearly all of these cells are dates from 1900 to 2100, the best first.

    Formats that fit equally well are in one tuple. Some cells may be in ISO 8601, such as `2026-03-01 10:15` beside
    `2026-03-01 9:15`.
    """
    figured = [cell for cell in cells if re.search(r"\d", cell) and len(cell) <= 40]
    left = [cell for cell in figured if not is_iso(cell)]
    if len(figured) < MOST * len(cells):
        return []
    forms = _likely_forms(left)
    found: list[tuple[str, ...]] = []
    while left and len(found) < _FORMATS:
        fitting = {form: sum(_fits(cell, form) for cell in left) for form in forms}
        best = max(fitting.values(), default=0)
        if not best:
            break
        found.append(tuple(form for form, number in fitting.items() if number == best))
        left = [cell for cell in left if not _fits(cell, found[-1][0])]
    return found if len(left) <= (1 - MOST) * len(cells) else []


def _likely_forms(cells: Sequence[str]) -> list[str]:
    """Return the formats that fit one of the cells. Cells that differ only in digits and letters are tried once."""
    shapes = {re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", cell)): cell for cell in cells}
    some = [*list(shapes.values())[:_SHAPES], *cells[:_SHAPES]]
    forms = (day + hour for day in DAYS for hour in HOURS)
    return [form for form in forms if any(_fits(cell, form) for cell in some)]


def _fits(cell: str, form: str) -> bool:
    found = moment(cell, form)
    return found is not None and 1900 <= found.year <= 2100


def moment(cell: str, form: str) -> date | None:
    """Return the date or moment that an import reads from a cell by a format; None if there is none."""
    try:
        return _reader(form)(cell)
    except ValueError:
        return None


_reader = cache(reader_of_form)


def clock_format(cells: Sequence[str]) -> str | None:
    """Return the format by which nearly all of these cells are times of day; None if there is none."""
    return next((form for form in CLOCKS if most(cells, partial(moment, form=form))), None)


def are_day_counts(cells: Sequence[str]) -> bool:
    """True if nearly all cells are numbers that a spreadsheet uses for days from 1954 to 2064."""
    return most(cells, lambda cell: _DAY_COUNT.fullmatch(cell) and 20_000 <= float(cell) < EXCEL_DAYS)


def are_unix_times(cells: Sequence[str]) -> bool:
    """True if nearly all cells are times from 2001 to 2033 in seconds since 1970, milliseconds or microseconds."""
    return most(cells, _UNIX_TIME)


_UNIX_TIME = re.compile(r"1\d{9}(?:\d{3}|\d{6})?(?:\.\d+)?", re.ASCII).fullmatch


def number_formats(cells: Sequence[str]) -> list[NumberFormat]:
    """Return the number formats that fit most of these cells equally well; empty if they are no amounts."""
    likely = [cell for cell in cells if _is_amount(cell)] if most(cells, _is_amount) else []
    signs = tuple(dict.fromkeys(sign for cell in likely for sign in _SIGN.findall(cell)))
    shapes = [
        NumberFormat(".", "", signs),
        NumberFormat(".", ",", signs),
        NumberFormat(",", "", signs),
        NumberFormat(",", ".", signs),
    ]
    shapes += [NumberFormat(",", " ", signs), NumberFormat(".", "'", signs), NumberFormat(".", " ", signs)]
    fits = [sum(bool(shape.amount(cell)) for cell in likely) for shape in shapes]
    best = max(fits)
    return [shape for shape, number in zip(shapes, fits, strict=True) if number == best > 0]


def _is_amount(cell: str) -> bool:
    """True for a number, with or without a currency. A percentage is no amount."""
    return bool(_AMOUNT.fullmatch(cell)) and "%" not in cell


def read_otherwise(cells: Sequence[str], formats: Sequence[NumberFormat]) -> NumberFormat | None:
    """Return another number format that gives some cell another amount than the first; None if none does."""
    first, *others = formats
    return next((other for other in others if any(_value(first, cell) != _value(other, cell) for cell in cells)), None)


def _value(numbers: NumberFormat, cell: str) -> float | None:
    plain = numbers.amount(cell)
    return None if plain is None else float(plain)
