"""The forms of cells: by them rows go on with the columns above, or are of another table."""

import re
from collections.abc import Sequence
from functools import lru_cache

LOOKED_AT = 20
"""Rows above and below a place by which this is told."""

Rows = Sequence[Sequence[str]]


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
    if _NUMBER.fullmatch(cell):
        return "9"
    prefix = _PREFIX.match(cell)
    return (prefix[0] if prefix else "") + _RUN.sub(
        lambda run: "9" if run[0].isdigit() else "a", cell[prefix.end() if prefix else 0 :]
    )


_NUMBER = re.compile(r"[^\w.,]*(?:\d{1,3}(?:[., '\u00a0\u2019]\d{3})+|\d+)(?:[.,]\d*)?[^\w.,]*")
_PREFIX = re.compile(r"[^\W\d_]+(?=[-_./#]?\d)")
_RUN = re.compile(r"\d+|[^\W\d_]+")
