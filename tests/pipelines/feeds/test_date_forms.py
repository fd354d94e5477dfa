"""Formats of dates: a text that a format could read as two different times is refused."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.parts import is_date_format
from pipelines.feeds.terms.times import Conventions, reader_of_form, times_of

FORMS = ("%m%d%Y", "%Y%m%d", "%y%m%d", "%Y%m%d%H%M%S", "%d%m%Y %H%M", "%m/%d/%Y %I%M%p", "%d%b%Y", "%Y-%m-%dT%H%M%S%f")


def read(text: str, *forms: str) -> object:
    return times_of(Conventions(ZoneInfo("UTC"), forms))(text)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *(("%m%d%Y", "1112026"), ("%d%m%Y", "1112026"), ("%Y%m%d", "2026111"), ("%y%m%d", "26111")),
        *(("%Y-%m-%d %H%M", "2026-03-01 130"), ("%Y%m%d%H%M", "20260301130"), ("%Y%m%d%H%M%S", "2026030113045")),
        *(("%m/%d/%Y %I%M %p", "03/01/2026 130 PM"), ("%Y%j", "202660"), ("%Y-%m-%d %H%M%S%f", "2026-03-01 13045123")),
    ],
)
def test_a_date_of_digits_without_separators_needs_all_its_digits(form: str, text: str) -> None:
    """FEED-FILE-09: 1112026 may be the first of November or the eleventh of January; no zero is made up."""
    assert is_date_format(form)
    assert isinstance(read(text, form), ValueFault)


@given(st.datetimes(datetime(1970, 1, 2), datetime(2068, 12, 31)), st.sampled_from(FORMS))  # noqa: DTZ001 - local
def test_a_time_that_is_written_by_a_format_is_read_back(moment: datetime, form: str) -> None:
    """FEED-FILE-09: and without its zeros it is that time or none."""
    text = moment.strftime(form)
    found = read(text, form)
    assert isinstance(found, str)
    assert datetime.fromisoformat(found).strftime(form) == text
    for place, sign in enumerate(text):
        if sign == "0" and text.isdecimal():
            assert isinstance(read(text[:place] + text[place + 1 :], form), ValueFault)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("03/01/2026 14:30 PM", "2026-03-01T14:30:00+00:00"),
        ("03/01/2026 02:30 am", "2026-03-01T02:30:00+00:00"),
        ("03/01/2026 02:30 PM", None),
        ("03/01/2026 12:30 AM", None),
    ],
)
def test_an_hour_that_contradicts_am_or_pm_is_not_a_time(text: str, found: str | None) -> None:
    """FEED-FILE-09: it was read as if the half were not there."""
    there = read(text, "%m/%d/%Y %H:%M %p")
    assert (None if isinstance(there, ValueFault) else there) == found


def test_a_format_with_12_hours_needs_am_or_pm() -> None:
    """FEED-FILE-09"""
    assert not is_date_format("%m/%d/%Y %I:%M")
    assert read("03/01/2026 12:30 AM", "%m/%d/%Y %I:%M %p") == "2026-03-01T00:30:00+00:00"


@pytest.mark.parametrize("name", ["UTC", "GMT", "utc"])
def test_a_zone_in_the_text_is_that_zone(name: str) -> None:
    """FEED-FILE-09: and not the feed's. Those that are not the same everywhere are not read."""
    read_there = times_of(Conventions(ZoneInfo("America/New_York"), ("%Y-%m-%d %H:%M %Z",)))
    assert read_there(f"2026-03-01 12:00 {name}") == "2026-03-01T12:00:00+00:00"
    assert isinstance(read_there("2026-03-01 12:00 EST"), ValueFault)


@pytest.mark.parametrize("text", ["2026-03-01 12:30.5", "2026-03-01T12:30.45", "2026-03-01T12:30,45Z"])
def test_a_time_with_a_fraction_of_a_minute_is_refused(text: str) -> None:
    """FEED-FILE-09: the fraction was ignored."""
    assert isinstance(read(text), ValueFault)


def test_blanks_without_end_are_looked_at_once() -> None:
    """LIMIT-14: such a text is refused in the time of its length; a hundred thousand blanks would take hours."""
    with pytest.raises(ValueError):  # noqa: PT011 - what a reader raises
        reader_of_form("%Y %m%d")(f"2020{' ' * 100_000}112")


@pytest.mark.parametrize("form", ["%Y-%m-%d %T", "%m/%d/%Y %r", "%e.%m.%Y", "%F", "%Y-%m-%d %k"])
def test_a_directive_that_only_some_pythons_read_is_refused(form: str) -> None:
    """FEED-FILE-09: a feed file says the same under each, and `%T` alone would leave the time of day out."""
    assert not is_date_format(form)


@pytest.mark.parametrize("text", ["2026-03-01T24:00:00Z", "2026-03-01 24:00", "2026-03-01T24:00:00+01:00"])
def test_a_time_with_the_hour_24_is_refused(text: str) -> None:
    """FEED-FILE-09: since Python 3.14 `fromisoformat` takes it for the next day."""
    assert isinstance(read(text), ValueFault)
