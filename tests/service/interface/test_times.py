"""Dates and times: what is read, what is shown, and which stored times a query's date matches."""

import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fhir_service.interface import json_text
from fhir_service.interface.json_text import Malformed, dump_json, parse_json
from fhir_service.interface.times import instant_text, normal_time, parse_instant, period_of, search_period

offsets = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
FROM, TO = datetime(1900, 1, 2), datetime(9000, 1, 1)  # noqa: DTZ001 - the strategy adds the zone
instants = st.datetimes(FROM, TO, timezones=offsets)


@given(instants)
def test_a_datetime_is_shown_as_the_same_instant_in_utc(instant: datetime) -> None:
    """COMMON-24, COMMON-26, COMMON-30: `+00:00`, to the microsecond."""
    shown = normal_time(instant.isoformat())
    assert shown.endswith("+00:00")
    assert datetime.fromisoformat(shown) == instant


@given(st.datetimes(FROM, TO, timezones=st.just(UTC)), st.integers(0, 999_999), st.integers(0, 7), st.booleans())
def test_a_time_in_utc_is_read_as_any_other(instant: datetime, fraction: int, digits: int, letter: bool) -> None:
    """COMMON-24, COMMON-30: the short way, with whatever fraction."""
    text = instant.replace(microsecond=0, tzinfo=None).isoformat()
    text += f".{fraction:06}"[: digits + 1] if digits else ""
    text += "Z" if letter else "+00:00"
    assert normal_time(text) == instant_text(parse_instant(text))


@given(instants, st.text("0123456789", min_size=1, max_size=9))
def test_digits_finer_than_a_microsecond_are_cut_off(instant: datetime, finer: str) -> None:
    """COMMON-30: cut off, not rounded."""
    instant = instant.replace(microsecond=123456)
    text = re.sub(r"\.(\d+)", rf".\g<1>{finer}", instant.isoformat())
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    ["2024-02-30", "2023-02-29", "2024", "2024-05", "2024-01-01T10:00:00", "2024-01-01T25:00:00Z", "2024-1-1", "",
     "2024-01-01T24:00:00Z", "2024-01-01T10:00Z", "2024-01-01 10:00:00Z", "２０２４-01-01", "2024-01-01T10:00:00+15:00",
     "0000-01-01", "20240101"],
)  # fmt: skip
def test_a_text_that_is_not_a_date_or_a_datetime_with_an_offset_is_refused(text: str) -> None:
    """COMMON-27, COMMON-29, COMMON-31."""
    with pytest.raises(ValueError, match=r"."):
        normal_time(text)


def test_a_date_stays_a_date() -> None:
    """COMMON-28."""
    assert normal_time("2024-02-29") == "2024-02-29"
    assert period_of("2024-02-29") == (datetime(2024, 2, 29, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))


@given(st.dates(date(1000, 1, 1), date(9998, 12, 31)))
def test_a_date_of_a_query_covers_its_whole_day_month_or_year(day: date) -> None:
    """SEARCH-DATE-08."""
    inside = datetime(day.year, day.month, day.day, 23, 59, 59, 999999, tzinfo=UTC)
    for text in (day.isoformat(), day.isoformat()[:7], day.isoformat()[:4]):
        start, end = search_period(text)
        assert start <= inside < end
        assert start.isoformat()[: len(text)] == text
        assert (end - timedelta(microseconds=1)).isoformat()[: len(text)] == text


def test_seconds_without_a_fraction_cover_the_whole_second() -> None:
    """SEARCH-DATE-09, SEARCH-DATE-10."""
    start, end = search_period("2024-01-01T12:00:00+02:00")
    assert (start, end) == (datetime(2024, 1, 1, 10, tzinfo=UTC), datetime(2024, 1, 1, 10, 0, 1, tzinfo=UTC))


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_keep_every_digit_through_json(number: Decimal) -> None:
    """COMMON-63, QR-ITEM-20, PAY-29: no number passes through a float."""
    assert str(parse_json(dump_json({"value": number}))["value"]) == str(number)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":1,"a":"\\u0022\\u0022"}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        "",
        "{",
        '{"a":{"b":1,"b":1}}',
        "\ufeff{}",
        "[" * 100_000,
        "{'a':1}",
        "1e99999999999999999999",
    ],
)
def test_a_text_that_is_not_json_of_the_interface_is_refused(text: str) -> None:
    """COMMON-32, COMMON-33, COMMON-34."""
    with pytest.raises(Malformed):
        parse_json(text)


leaves = st.sampled_from(
    ['"a"', '":"', '"\\""', '"\\u0022"', '"\\\\"', "1.50", "-0", "true", "null", "[]", "{}", '"]"', '"{"']
)
keys = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"\\""', '"\\u0022"'])


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(parts, max_size=3).map(lambda found: f"[{', '.join(found)}]")
    pairs = st.lists(st.tuples(keys, parts).map(" : ".join), max_size=3)
    return lists | pairs.map(lambda found: "{" + ",".join(found) + "}")


@given(st.recursive(leaves, _joined, max_leaves=12))
def test_the_quick_way_to_read_json_finds_what_the_careful_one_finds(text: str) -> None:
    """COMMON-32, COMMON-33: whatever keys, quotation marks and brackets stand in keys and strings."""
    try:
        expected = json_text._CAREFUL.decode(text)
    except Malformed:
        with pytest.raises(Malformed):
            parse_json(text)
    else:
        assert parse_json(text) == expected


@pytest.mark.parametrize("text", ['["]",' * 101 + '"x"' + "]" * 101, '["]",{"[":' * 51 + "1" + "}]" * 51])
def test_brackets_in_strings_hide_no_depth(text: str) -> None:
    """COMMON-32"""
    with pytest.raises(Malformed, match="too deeply"):
        parse_json(text)
