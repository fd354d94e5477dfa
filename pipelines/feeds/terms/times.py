"""Times as an export writes them: read by the formats of its feed, and returned as a date or as an instant in UTC.

The times of a file fall on few days, so facts about a day are computed once.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import lru_cache, partial
from typing import Literal

from fhir_service.interface.times import instant_text, normal_time
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.numbers import PLAIN, NumberFormat

_DIRECTIVE = re.compile(r"%(.)")
_BLANKS = re.compile(r"\s+")
_CLOCK = ("%H", "%I", "%X", "%c")
"""The directives of a time of day."""


def reader_of_form(form: str) -> Callable[[str], date]:
    """Return the function that reads texts of a format; it raises ValueError for other texts."""
    literals, parts = _DIRECTIVE.split(form)[::2], _DIRECTIVE.findall(form)
    needed, there = {"Y", "m", "d"} | ({"I", "p"} if "I" in parts or "p" in parts else set()), {*parts}
    is_plain = needed <= there <= {*"YmdHIMSp"} and len(there) == len(parts) and not {"H", "I"} <= there
    has_clock, match = any(part in form for part in _CLOCK), _shape(literals, parts).fullmatch

    def read(text: str) -> date:
        if (seen := match(text)) is None:  # the shape shows this faster than `strptime`
            raise ValueError
        given = dict(zip(parts, seen.groups(), strict=True))
        found = _of_figures(**given) if is_plain else _parsed(text, form, given.get("p", ""))
        return found if has_clock else found.date()

    return read


def _of_figures(Y: str, m: str, d: str, H: str = "0", I: str = "", M: str = "0", S: str = "0", p: str = "") -> datetime:  # noqa: E741, N803 - directives
    """Return the time of the figures of a plain format. It is three times as fast as `strptime`."""
    hour = int(I or H)
    if I:
        if not 1 <= hour <= _NOON:
            raise ValueError
        hour = hour % _NOON + (_NOON if p[0] in "Pp" else 0)
    return datetime(int(Y), int(m), int(d), hour, int(M), int(S))  # noqa: DTZ001 - made aware later


_OF_UTC = ("UTC", "GMT")
"""Names of zones that mean the same everywhere. `strptime` accepts them, and the machine's, but ignores them."""
_NOON = 12
_WITH_BLANKS = "cxXZ"
"""Directives whose texts may hold blanks. All others end at a blank, so that no run of blanks is tried twice."""
_FIGURES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "j": "[0-9]{1,3}",
    "f": "[0-9]{1,6}",
    **dict.fromkeys("mdHIMS", "[0-9]{1,2}"),
}
_WIDTHS = {"Y": "[0-9]{4}", "j": "[0-9]{3}", "f": "[0-9]{3}|[0-9]{6}", **dict.fromkeys("ymdHIMS", "[0-9]{2}")}
"""Figures of directives, and those beside other figures."""


def _parsed(text: str, form: str, half: str) -> datetime:
    """Return the time that a text means by a format. Raises ValueError if the text could mean another time."""
    found = None
    for name in _OF_UTC if "%Z" in form else ():
        with suppress(ValueError):
            found = datetime.strptime(text, form.replace("%Z", name)).replace(tzinfo=UTC)
    if "%Z" not in form:
        found = datetime.strptime(text, form)  # noqa: DTZ007 - made aware later
    if found is None or (half and (half[0] in "Pp") != (found.hour >= _NOON)):
        raise ValueError
    return found


def _shape(literals: Sequence[str], parts: Sequence[str]) -> re.Pattern[str]:
    """Return the shape of a format's texts, with a group for each directive. Adjacent numbers have all their digits.

    Otherwise `1112026` could be the first of November as well as the eleventh of January.
    """
    shape = _literal(literals[0])
    for number, part in enumerate(parts):
        beside = [
            parts[at] for at in (number - 1, number + 1) if 0 <= at < len(parts) and not literals[max(at, number)]
        ]
        figures = _WIDTHS if any(other in _WIDTHS for other in beside) else _FIGURES
        other = "[AaPp][Mm]" if part == "p" else ".+?" if part in _WITH_BLANKS else r"\S+?"
        shape += f"({figures.get(part, other)})" + _literal(literals[number + 1])
    return re.compile(shape, re.IGNORECASE | re.DOTALL)


def _literal(text: str) -> str:
    """Return a pattern for the text between directives, as `strptime` reads it: any blanks match blanks."""
    return r"\s+".join(map(re.escape, _BLANKS.split(text)))


Ambiguous = Literal["reject", "earlier", "later"]
EXCEL = "excel"
"""A date format: a number, the days since the end of 1899, or since 1904, as in a spreadsheet."""
DAY_0, DAY_0_OF_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001 - made aware in the feed's zone
"""The days with number 0 in spreadsheets that count from 1900, and in those that count from 1904."""
UNIX = "unix"
"""A date format: a number, the seconds since 1970, or milliseconds or microseconds."""
EXCEL_DAYS = 73_051
"""The first day of the year 2100 as a number of days in a spreadsheet."""
YEARS = (1900, 2199)
"""The first and the last year of times, unless a feed names others."""
UNIX_YEARS = (1990, 2100)
"""The first and the last year of seconds since 1970: otherwise nearly any number of ten digits would be a time."""


@dataclass(frozen=True)
class Conventions:
    """The format of times and numbers in a feed: the zone of times without an offset, and formats besides ISO 8601.

    * ambiguous: the choice for a local time that the clocks show twice, or skip.
    * years: the first and the last year, if the feed names them.
    * days_since: the year from which numbers of days count.
    """

    zone: tzinfo
    dates: tuple[str, ...] = ()
    numbers: NumberFormat = PLAIN
    ambiguous: Ambiguous = "reject"
    years: tuple[int, int] | None = None
    days_since: Literal[1900, 1904] = 1900


def time(text: str, conventions: Conventions) -> object:
    """Return a date unchanged, a datetime as the same instant in UTC, and a `ValueFault` for any other text."""
    return times_of(conventions)(text)


class TimeReader:
    """A reader of the times of a feed."""

    def __init__(self, conventions: Conventions) -> None:
        self._conventions, years = conventions, conventions.years or YEARS
        self._readers: list[tuple[Callable[[str], date | None], int, int]] = [(_iso_time, *years)]
        for form in conventions.dates:
            of_form = (conventions.years or UNIX_YEARS) if form == UNIX else years
            since_1904 = form == EXCEL and conventions.days_since == 1904
            numbered = partial(_day_count, begins=(DAY_0_OF_1904 - DAY_0).days) if since_1904 else _NUMBERED.get(form)
            self._readers.append((numbered or reader_of_form(form), *of_form))
        # Computing it takes as long as reading many times, and only times without an offset need it.
        self._shift = lru_cache(DAYS_REMEMBERED)(lambda ordinal: _shift_on(ordinal, conventions.zone))

    def __call__(self, text: str) -> object:
        text, beyond = text.strip(), None
        for read, first, last in self._readers:
            try:
                found = read(text)
                if found is None:
                    continue
                if first <= found.year <= last:
                    return self._made(found)
            except (ValueError, OverflowError):
                continue
            beyond = beyond or (first, last)
        return self._beyond(beyond) if beyond else self._no_time()

    def _made(self, found: date) -> object:
        if found.toordinal() in _ODD_DAYS:
            return self._made_of_odd(found)
        if not isinstance(found, datetime):
            return found.isoformat()
        shift = self._shift(found.toordinal()) if found.tzinfo is None else None
        return _instant(found, self._conventions) if shift is None else f"{(found - shift).isoformat()}+00:00"

    def _made_of_odd(self, found: date) -> object:
        """Return a time on an odd day, or `NO_DAY`.

        A time may be meant only on 1970-01-01, and only if it is not midnight, neither by its own clock nor in UTC.
        """
        day = found.date() if isinstance(found, datetime) else found
        if not isinstance(found, datetime) or day != _EPOCH.date() or found.replace(tzinfo=UTC) == _EPOCH:
            return NO_DAY
        made = _instant(found, self._conventions)
        return NO_DAY if made == _BEGINNING else made

    def _beyond(self, years: tuple[int, int]) -> ValueFault:
        """Return the fault of a time before or after the accepted years."""
        if self._conventions.years is None and years == YEARS:
            return NO_DAY
        first, last = years
        told = (
            "the years that the feed file allows" if self._conventions.years else "the years of times that are numbers"
        )
        mends = "" if self._conventions.years else "; to allow others, set years in the feed file: years = [1970, 2199]"
        return ValueFault("FEED-FILE-09", f"the day is before {first} or after {last}, {told}{mends}")

    def _no_time(self) -> ValueFault:
        forms = " or ".join(["ISO 8601", *self._conventions.dates])
        return ValueFault("FEED-FILE-09", f"not a date or time of the calendar in the form {forms}")


times_of = lru_cache(64)(TimeReader)
"""Returns the reader of times by some conventions."""
DAYS_REMEMBERED = 4096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = "1970-01-01T00:00:00+00:00"
_ODD_DAYS = {day.toordinal() for day in (date(1900, 1, 1), date(1969, 12, 31), _EPOCH)}
"""Days that programs write for no day."""
NO_DAY = ValueFault(
    "FEED-FILE-09",
    "the day is before 1900, after 2199, or one that programs write for an empty cell (1970-01-01, 1969-12-31); if it "
    "means an empty cell, add its text to empty = [...] in the feed file",
)
"""The fault of an improbable time: a typing error, another calendar, or a day that means no day."""


def _shift_on(ordinal: int, zone: tzinfo) -> timedelta | None:
    """Return the offset of a zone's clocks from UTC on a day; None if it changes, or cannot be known."""
    day = date.fromordinal(ordinal)
    begins = datetime(day.year, day.month, day.day, tzinfo=zone)
    try:
        moments = [begins + timedelta(hours=hour) for hour in range(25)]
    except OverflowError:
        return None
    found = {moment.replace(fold=fold).utcoffset() for moment in moments for fold in (0, 1)}
    return found.pop() if len(found) == 1 else None


_ISO_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ]((?:[01]\d|2[0-3]):\d\d)(?:(:\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ISO_DAY = 10
"""The length in characters."""


def _iso_time(text: str) -> date | None:
    if len(text) == _ISO_DAY:
        return date.fromisoformat(text) if _ISO_DATE.fullmatch(text) else None
    match = _ISO_TIME.fullmatch(text)
    if not match:
        return None
    day, minute, second, fraction, offset = match.groups()
    micros = f".{(fraction + '00000')[:6]}" if fraction else ""
    offset = "" if not offset else "+00:00" if offset in "Zz" else offset
    return datetime.fromisoformat(f"{day}T{minute}{second or ':00'}{micros}{offset}")


def _day_count(text: str, begins: int = 0) -> date | None:
    """Return the day that a spreadsheet means by a number; with a fraction, the time of day to the second."""
    if not _DAY_COUNT.fullmatch(text):
        return None
    days = Decimal(text) + begins
    if not 61 <= days < EXCEL_DAYS:  # before March 1900 a spreadsheet's days are off by one
        return None
    found = DAY_0 + timedelta(seconds=int((days * 86_400).to_integral_value()))
    return found if "." in text else found.date()


_DAY_COUNT = re.compile(r"[0-9]{2,5}(?:[.][0-9]{1,15})?")


def _unix_time(text: str) -> datetime | None:
    """Return the moment of a number of seconds since 1970, or of milliseconds or microseconds, by its length."""
    if not (found := _UNIX_TIME.fullmatch(text)):
        return None
    whole, fraction = found.groups(default="")
    figures = f"{'0' if len(whole) % 3 == 0 else ''}{whole}{fraction}"[:16].ljust(16, "0")
    return _EPOCH + timedelta(microseconds=int(figures))


_UNIX_TIME = re.compile(r"([1-9][0-9]{8,9}(?:[0-9]{3}|[0-9]{6})?)(?:[.]([0-9]{1,9}))?")
_NUMBERED: dict[str, Callable[[str], date | None]] = {EXCEL: _day_count, UNIX: _unix_time}


def _instant(found: datetime, conventions: Conventions) -> str | ValueFault:
    """Return a time in UTC, or a fault.

    A local time that is skipped or repeated is one of two moments: the feed may choose.
    """
    if found.tzinfo is None:
        both = [found.replace(tzinfo=conventions.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        if both[0] != both[1] and conventions.ambiguous == "reject":
            what = _SKIPPED if both[0] > both[1] else _TWICE
            return ValueFault("FEED-FILE-09", what.format(zone=conventions.zone))
        found = max(both) if conventions.ambiguous == "later" else min(both)
    return instant_text(found)


_SKIPPED = (
    "this local time does not exist: the clocks of {zone} skip it when they are put forward; correct it, or set "
    "ambiguous in the feed file"
)
_TWICE = (
    "this local time occurs twice, when the clocks of {zone} are put back; write it with its offset, or say in the "
    "feed file which one is meant (ambiguous)"
)


@lru_cache(maxsize=4096)
def micros(text: str | None) -> int | None:
    """Return the microseconds since 1970 of a converted time; a date counts as its midnight in UTC."""
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    span = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


def resource_micros(text: object) -> int | None:
    """Return the microseconds since 1970 of a time in a resource; None if it is no time."""
    try:
        return micros(normal_time(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def in_hours(value: timedelta) -> str:
    """Return a duration as a spreadsheet shows it: `25:01:01`, `-0:00:01.5`."""
    seconds, parts = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return ("-" if value < timedelta() else "") + text + (f".{parts:06}" if parts else "")
