"""Pages of searches that are far from the beginning, in the order of a date or of creation, in DuckDB.

It has no index that gives rows in order, and would sort all rows that come before the page. To count the rows of each
day, or of each ten thousand numbers, takes a tenth of that; then only those of the page are sorted.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, DateTime, Select, and_, func, null, or_

FAR = 10_000
"""Rows before a page from which on their spans are counted."""
_MICROSECONDS = 86_400_000_000
_NUMBERS = 10_000
_DAYS = date(1970, 1, 1).toordinal()


class Spans(NamedTuple):
    """Days, or ten thousands of numbers, as a condition on rows, and how many rows come before all of them."""

    clause: ColumnElement[bool]
    before: int


def spans(
    connection: Connection, rows: Select[Any], column: ColumnElement[Any], descending: bool, offset: int, count: int
) -> Spans | None:
    """Return the days or numbers of the rows of a page; None where it is not that far, or in another order.

    Args:
        rows: selects the rows that are found; its columns are replaced.
        column: a time or number, by which they are sorted. Rows without one come last.
        offset: rows before the page.
        count: rows of the page.
    """
    if offset < FAR or not isinstance(column.type, DateTime | BigInteger):
        return None
    measured = _Measured.of(column)
    span = measured.value.op("//", precedence=8)(measured.span)
    counts = connection.execute(rows.with_only_columns(span, func.count()).group_by(span)).all()
    ordered: list[tuple[int | None, int]] = sorted(((s, n) for s, n in counts if s is not None), reverse=descending)
    ordered += [(None, n) for s, n in counts if s is None]
    before = reached = 0
    found: list[int | None] = []
    for each, number in ordered:
        reached += number
        if reached <= offset:
            before = reached
            continue
        found.append(each)
        if reached >= offset + count:
            break
    return Spans(measured.among(found), before)


class _Measured(NamedTuple):
    """A column as numbers from 0 on, and how many of these a span has."""

    column: ColumnElement[Any]
    value: ColumnElement[int]
    span: int

    @classmethod
    def of(cls, column: ColumnElement[Any]) -> "_Measured":
        if isinstance(column.type, BigInteger):
            return cls(column, column, _NUMBERS)
        # Microseconds since the calendar began: no number is below zero, which `//` would round up.
        return cls(column, func.epoch_us(column) + _DAYS * _MICROSECONDS, _MICROSECONDS)

    def among(self, spans: Sequence[int | None]) -> ColumnElement[bool]:
        """True for what lies in one of some spans, which have no other with rows between them; None stands for none."""
        there = [each for each in spans if each is not None]
        alternatives: list[ColumnElement[bool]] = [self.column.is_(null())] if None in spans else []
        if there:
            # As numbers: DuckDB takes no time at the ends of the calendar.
            first, end = min(there) * self.span, (max(there) + 1) * self.span
            alternatives.append(and_(self.value >= first, self.value < end))
        return or_(*alternatives)
