"""Dates and instants: parse them, store them, and compute the time that they cover."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?(Z|[+-](?:0\d|1[0-3]):[0-5]\d|[+-]14:00)\Z", re.ASCII
)
# A time in UTC that `instant_text` would write alike, except perhaps for the form of its offset.
_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.(?!000000)\d{6})?)(?:Z|\+00:00)\Z", re.ASCII)


def parse_instant(text: str) -> datetime:
    """Return the instant of a datetime with an offset, in UTC, cut off at the microsecond. Raises ValueError."""
    match = _DATETIME.match(text)
    if not match:
        raise ValueError("not a datetime with an offset")
    seconds, fraction, offset = match.groups()
    fraction = f".{(fraction + '00000')[:6]}" if fraction else ""
    try:
        return datetime.fromisoformat(f"{seconds}{fraction}{offset}").astimezone(UTC)
    except OverflowError:
        raise ValueError("outside the calendar") from None


def parse_date(text: str) -> date:
    """Parse a calendar date. Raises ValueError."""
    if not _DATE.match(text):
        raise ValueError("not a date")
    return date.fromisoformat(text)


@lru_cache(maxsize=64)
def instant_text(instant: datetime) -> str:
    """Return an instant as responses show it: in UTC, with `+00:00`."""
    return instant.astimezone(UTC).isoformat()


@lru_cache(maxsize=4096)
def normal_time(text: str) -> str:
    """Return a date unchanged, and a datetime as the same instant in UTC. Raises ValueError for any other text."""
    if len(text) == 10:
        parse_date(text)
        return text
    if plain := _IN_UTC.match(text):
        datetime.fromisoformat(text)
        return f"{plain[1]}+00:00"
    return instant_text(parse_instant(text))


_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def period_of(text: str) -> tuple[datetime, datetime]:
    """Return the time [start, end) that a stored date or datetime covers: a day, or one microsecond."""
    if len(text) < 10:
        return _calendar_period(text)
    start = datetime.fromisoformat(text)
    if len(text) > 10:
        return start, _later(start, _MICROSECOND)
    start = start.replace(tzinfo=UTC)
    return start, _later(start, _DAY)


def _calendar_period(text: str) -> tuple[datetime, datetime]:
    """Return the time [start, end) of a year, a month or a day, in UTC."""
    parts = [int(part) for part in text.split("-")]
    year, month, day = (*parts, 1, 1)[:3]
    start = datetime(year, month, day, tzinfo=UTC)
    if len(parts) == 3:
        return start, _later(start, _DAY)
    following = (year + 1, 1) if len(parts) == 1 or month == 12 else (year, month + 1)
    return start, _end_of_time() if following[0] > 9999 else datetime(*following, 1, tzinfo=UTC)


def _later(start: datetime, span: timedelta) -> datetime:
    try:
        return start + span
    except OverflowError:
        return _end_of_time()


def _end_of_time() -> datetime:
    return datetime.max.replace(tzinfo=UTC)


_SEARCH_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?\Z", re.ASCII)
_SEARCH_MINUTE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?:Z|[+-]\d\d:\d\d)\Z", re.ASCII)


def search_period(text: str) -> tuple[datetime, datetime]:
    """Return the time [start, end) that a date of a query covers, at the precision in which it is written."""
    if _SEARCH_DATE.match(text):
        return _calendar_period(text)
    if _SEARCH_MINUTE.match(text):
        start = parse_instant(f"{text[:16]}:00{text[16:]}")
        return start, _later(start, timedelta(minutes=1))
    start = parse_instant(text)
    fraction = "." in text
    return start, _later(start, _MICROSECOND if fraction else timedelta(seconds=1))
