"""Marks of queries: up to where a database was read, and where the next reading starts."""

import math
from bisect import insort
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

ONE_DAY = Decimal(1)
PUT_BACK = timedelta(hours=1)
"""Times without a zone repeat an hour when clocks are put back, so a new row may be dated before the newest."""
NEWEST = 5
"""The number of newest values from which the mark is taken."""
NOT_ISO = "its texts are not ISO 8601 dates or times; use a column of dates, times or numbers as the watermark"
NO_OVERLAP = "the watermark is a number, so set how far to go back each time for rows that come late: overlap = 1000"


class NoMark(ValueError):
    """A watermark cannot be a mark. The message is one clause with the reason."""


class Watermark(NamedTuple):
    """The newest watermark that was read. kind: `time`, `date`, `number`, or `text` (of ISO 8601)."""

    kind: str
    value: str


class NewestWatermarks:
    """The newest watermarks of the rows so far.

    A time in the future, an infinite number and NaN are no marks: earlier rows would be missed for good. A number far
    ahead cannot be recognized as wrong, so the mark of numbers is the fifth newest. Up to four mistyped numbers then
    hide nothing.
    """

    def __init__(self, now: datetime) -> None:
        self._tomorrow = now.astimezone(UTC) + timedelta(days=1)
        self._values: list[Any] = []

    def note(self, value: Any) -> None:
        """Note the watermark of a row. An empty text is ignored. Raises NoMark."""
        if value is None or (isinstance(value, str) and not value.strip()) or self._is_no_mark(value):
            return
        try:
            if value not in self._values:
                insort(self._values, value)
                del self._values[:-NEWEST]
        except TypeError:
            raise NoMark("its values are of different types; make the query return one type") from None

    def _is_no_mark(self, value: Any) -> bool:
        kind = kind_of(value)
        if kind == "time":
            return bool(value > (self._tomorrow if value.tzinfo else self._tomorrow.replace(tzinfo=None)))
        if kind == "text":
            return bool(value[:10] > self._tomorrow.date().isoformat())
        if kind == "number":
            return not Decimal(value).is_finite()
        return kind == "date" and bool(value > self._tomorrow.date())

    @property
    def mark(self) -> Watermark | None:
        if not self._values:
            return None
        kind = kind_of(self._values[-1])
        value = self._values[0 if kind == "number" else -1]
        return Watermark(kind, value.isoformat() if kind in ("time", "date") else str(value))

    def is_before(self, mark: Watermark) -> bool:
        """True if no row is as new as an earlier mark."""
        newest = self._values[-1] if self._values else None
        if newest is None or kind_of(newest) != mark.kind:
            return True
        oldest = value_of(mark)
        if mark.kind == "time":
            if bool(newest.tzinfo) != bool(oldest.tzinfo):
                return True
            oldest -= _put_back(oldest)
        return bool(newest < oldest)

    def are_few(self, mark: Watermark) -> bool:
        """True if fewer numbers follow an earlier mark than it left behind: it was too far ahead, or rows are gone."""
        return mark.kind == "number" and len(self._values) < NEWEST


def kind_of(value: object) -> str:
    """Return the kind of a watermark. Raises NoMark."""
    if isinstance(value, datetime):
        return "time"
    if isinstance(value, date):
        return "date"
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return "number"
    if not isinstance(value, str):
        raise NoMark("its values are not dates, times or numbers; use a column of these as the watermark")
    _day(value)
    return "text"


def _put_back(value: datetime) -> timedelta:
    return timedelta() if value.tzinfo else PUT_BACK


def value_of(mark: Watermark) -> Any:
    if mark.kind == "time":
        return datetime.fromisoformat(mark.value)
    if mark.kind == "date":
        return date.fromisoformat(mark.value)
    if mark.kind == "number":
        value = Decimal(mark.value)
        return int(value) if value == value.to_integral_value() else value
    return mark.value


def since(mark: Watermark, overlap: Decimal | None) -> Any:
    """Return where to start reading: the mark less the overlap, which is a day by default. Raises NoMark.

    A text goes back to the beginning of a day, which is less than any time of that day in any spelling.
    """
    value = value_of(mark)
    if mark.kind == "number":
        if overlap is None:
            raise NoMark(NO_OVERLAP)
        return value - (int(overlap) if isinstance(value, int) and overlap == int(overlap) else overlap)
    days = ONE_DAY if overlap is None else overlap
    if mark.kind == "time":
        return value - timedelta(days=float(days)) - _put_back(value)
    whole = timedelta(days=math.ceil(days))
    return (_day(value) - whole).isoformat() if mark.kind == "text" else value - whole


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        raise NoMark(NOT_ISO) from None
