"""Pages far from the beginning of a search in DuckDB, in the order of a date or of creation.

DuckDB has no index that yields rows in order, so that it would sort all rows before the page. Counting the rows of each
day, or of each ten thousand numbers, takes a tenth of that time. Then only the spans of the page are sorted.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, DateTime, Select, and_, func, null, or_

FAR = 10_000
"""Spans are counted for pages that begin after so many rows."""
_MICROSECONDS = 86_400_000_000
_NUMBERS = 10_000
_DAYS = date(1970, 1, 1).toordinal()


class PageSpans(NamedTuple):
    """The spans of a page (days, or ten thousands of numbers) as a condition, and the number of rows before them."""

    clause: ColumnElement[bool]
    before: int


def spans(
    connection: Connection, rows: Select[Any], column: ColumnElement[Any], descending: bool, offset: int, count: int
) -> PageSpans | None:
    """Return the spans that hold a page; None if it is not far from the beginning, or in another order.

    Args:
        rows: selects the matching rows; its columns are replaced.
        column: the time or number that sorts them. Rows without a value come last.
        offset: the number of rows before the page.
        count: the number of rows on the page.
    """
    if offset < FAR or not isinstance(column.type, DateTime | BigInteger):
        return None
    measured = _MeasuredColumn.of(column)
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
    return PageSpans(measured.among(found), before)


class _MeasuredColumn(NamedTuple):
    """A column as numbers from 0 on, and the size of a span in these numbers."""

    column: ColumnElement[Any]
    value: ColumnElement[int]
    span: int

    @classmethod
    def of(cls, column: ColumnElement[Any]) -> "_MeasuredColumn":
        if isinstance(column.type, BigInteger):
            return cls(column, column, _NUMBERS)
        # Microseconds since the first day of the calendar: `//` would round negative numbers up.
        return cls(column, func.epoch_us(column) + _DAYS * _MICROSECONDS, _MICROSECONDS)

    def among(self, spans: Sequence[int | None]) -> ColumnElement[bool]:
        """Return the condition of rows in these adjacent spans. None is the span of rows without a value."""
        there = [each for each in spans if each is not None]
        alternatives: list[ColumnElement[bool]] = [self.column.is_(null())] if None in spans else []
        if there:
            # Compare numbers: DuckDB accepts no time at the ends of the calendar.
            first, end = min(there) * self.span, (max(there) + 1) * self.span
            alternatives.append(and_(self.value >= first, self.value < end))
        return or_(*alternatives)
