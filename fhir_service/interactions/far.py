"""Pages of searches in the order of a date that are far from the beginning, in DuckDB.

It has no index that gives rows in order, and would sort all rows that come before the page. To count the rows of each
day takes a tenth of that; then only the days of the page are sorted.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, DateTime, Select, and_, func, null, or_

FAR = 10_000
"""Rows before a page from which on their days are counted."""
_MICROSECONDS = 86_400_000_000
_DAYS = date(1970, 1, 1).toordinal()


class Stretch(NamedTuple):
    """Some days, as a condition on rows, and how many rows come before all of them."""

    clause: ColumnElement[bool]
    before: int


def stretch(
    connection: Connection, rows: Select[Any], column: ColumnElement[Any], descending: bool, offset: int, count: int
) -> Stretch | None:
    """Return the days on which the rows of a page are; None where the page is not that far, or the order of no date.

    Args:
        rows: selects the rows that are found; its columns are replaced.
        column: the time by which they are sorted. Rows without one come last.
        offset: rows before the page.
        count: rows of the page.
    """
    if offset < FAR or not isinstance(column.type, DateTime):
        return None
    day = _since_the_beginning(column).op("//", precedence=8)(_MICROSECONDS)
    counts = connection.execute(rows.with_only_columns(day, func.count()).group_by(day)).all()
    ordered: list[tuple[int | None, int]] = sorted(((d, n) for d, n in counts if d is not None), reverse=descending)
    ordered += [(None, n) for d, n in counts if d is None]
    before = reached = 0
    days: list[int | None] = []
    for found, number in ordered:
        reached += number
        if reached <= offset:
            before = reached
            continue
        days.append(found)
        if reached >= offset + count:
            break
    return Stretch(_on(column, days), before)


def _on(column: ColumnElement[Any], days: Sequence[int | None]) -> ColumnElement[bool]:
    """True where a time is on one of these days, which have no other with rows between them; None stands for none."""
    dated = [day for day in days if day is not None]
    alternatives: list[ColumnElement[bool]] = [column.is_(null())] if None in days else []
    if dated:
        # As numbers: DuckDB takes no time at the ends of the calendar.
        first, end = min(dated) * _MICROSECONDS, (max(dated) + 1) * _MICROSECONDS
        alternatives.append(and_(_since_the_beginning(column) >= first, _since_the_beginning(column) < end))
    return or_(*alternatives)


def _since_the_beginning(column: ColumnElement[Any]) -> ColumnElement[int]:
    """The microseconds of a time since the calendar began: no number is below zero, which `//` would round up."""
    return func.epoch_us(column) + _DAYS * _MICROSECONDS
