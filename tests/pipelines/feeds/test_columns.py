"""Cells as values: amounts to the cent, times in the feed's zone, references."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.feeds.terms import times
from pipelines.feeds.terms.columns import ValueFault, amount, cents, key, number, reference
from pipelines.feeds.terms.times import Conventions, TimeReader, micros, time

BERLIN = Conventions(ZoneInfo("Europe/Berlin"), ("%d.%m.%Y %H:%M", "%d.%m.%Y"))


@given(st.integers(0, 999_999_999), st.integers(0, 3), st.sampled_from(["", "+", "0"]))
def test_no_cent_is_gained_or_lost(found: int, zeros: int, sign: str) -> None:
    """FEED-PAY-03, PAY-29."""
    text = f"{sign}{found // 100}.{found % 100:02}{'0' * zeros}"
    could_be_thousands = zeros == 1 and sign != "0" and 1 <= found // 100 <= 999
    assert isinstance(amount(text), ValueFault) if could_be_thousands else cents(str(amount(text))) == found


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5))
def test_an_amount_keeps_its_value_and_has_cents_only_when_it_is_exact(value: Decimal) -> None:
    """FEED-PAY-03, PAY-26."""
    shown = amount(f"{value:f}")
    if not isinstance(shown, ValueFault):
        assert Decimal(str(shown)) == value
        assert cents(str(shown)) in (None, value * 100)


@pytest.mark.parametrize("text", ["", "x", "1,50", "$5", "1 000", "1e3", "(5.00", "NaN", "--1", "١", "1_0", "9" * 50])
def test_a_text_that_is_not_a_plain_amount_is_a_fault(text: str) -> None:
    """FEED-FILE-09."""
    assert isinstance(amount(text), ValueFault)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024-02-29", "2024-02-29"),
        ("2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00+00:00"),
        ("2024-05-01T08:00:00.5Z", "2024-05-01T08:00:00.500000+00:00"),
        ("2024-05-01 10:00", "2024-05-01T08:00:00+00:00"),
        ("2024-01-01T10:00", "2024-01-01T09:00:00+00:00"),
        ("01.05.2024 10:00", "2024-05-01T08:00:00+00:00"),
        ("01.05.2024", "2024-05-01"),
        ("2024-10-27 02:30+01:00", "2024-10-27T01:30:00+00:00"),
    ],
)
def test_a_time_is_taken_in_the_zone_and_formats_of_its_feed(text: str, found: str) -> None:
    """FEED-FILE-07, FEED-FILE-08."""
    assert time(text, BERLIN) == found


@pytest.mark.parametrize(
    ("text", "earlier", "later"),
    [
        ("2024-10-27 02:30", "2024-10-27T00:30:00+00:00", "2024-10-27T01:30:00+00:00"),
        ("2024-03-31 02:30", "2024-03-31T00:30:00+00:00", "2024-03-31T01:30:00+00:00"),
        ("31.03.2024 03:00", "2024-03-31T01:00:00+00:00", "2024-03-31T01:00:00+00:00"),
    ],
)
def test_a_feed_may_say_which_moment_a_local_time_is_that_comes_twice_or_not_at_all(
    text: str, earlier: str, later: str
) -> None:
    """FEED-FILE-07."""
    assert time(text, replace(BERLIN, ambiguous="earlier")) == earlier
    assert time(text, replace(BERLIN, ambiguous="later")) == later


def test_clocks_are_asked_only_for_times_without_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(times, "_shift_on", lambda ordinal, _: asked.append(ordinal))
    read = TimeReader(BERLIN)
    assert read("2026-07-01T10:00:00Z") == "2026-07-01T10:00:00+00:00"
    assert read("2026-07-01") == "2026-07-01"
    assert not asked
    assert [read("01.07.2026 10:00"), read("01.07.2026 10:30")] == [
        "2026-07-01T08:00:00+00:00",
        "2026-07-01T08:30:00+00:00",
    ]
    assert len(asked) == 1


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-30",
        "2024-05-01T25:00Z",
        "20240501",
        "2024-W01-1",
        "05/01/2024",
        "2024-03-31 02:30",
        "2024-10-27 02:30",
        "now",
        "２０２４-05-01",
    ],
)
def test_a_time_that_does_not_exist_is_a_fault(text: str) -> None:
    """FEED-FILE-09."""
    assert isinstance(time(text, BERLIN), ValueFault)


@pytest.mark.parametrize(
    ("text", "found"),
    [("p1", "Patient/p1"), (" Patient/p1 ", "Patient/p1"), ("Group/g", None), ("p 1", None), ("Patient/", None)],
)
def test_an_id_is_taken_with_its_type_or_without(text: str, found: str | None) -> None:
    """FEED-FILE-06."""
    shown = reference(text, ("Patient",))
    assert shown == found if found else isinstance(shown, ValueFault)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" k 1\u00a0", "k 1"),
        ("\ufeffk\u200b\u00ad", "k"),
        ("\u200f\u05d0\u00a01\u200e", "\u05d0 1"),
        ("e\u0301", "\u00e9"),
        ("q\u0301", "q\u0301"),
    ],
)
def test_a_key_is_the_same_with_unseen_signs_around_it_and_without(text: str, found: str) -> None:
    """FEED-FILE-09, LEDGER-08: letters of any script stay; a combining sign is joined with its letter."""
    assert key(text) == found


@pytest.mark.parametrize(
    "text", ["a\tb", "a\nb", "a\0", "k" * 201, "a\u200bb", "a\u00adb", "7.0", "-0", "20411.0", "1E+14", "1.23457E+14"]
)
def test_a_text_that_holds_more_than_a_key_is_not_a_key(text: str) -> None:
    """FEED-FILE-09."""
    assert isinstance(key(text), ValueFault)


@pytest.mark.parametrize("text", ["7", "007", "7.1", "v7.0", "7.0.0", "1E14", "E+1", "12E+3"])
def test_a_key_with_points_and_letters_is_one(text: str) -> None:
    assert key(text) == text


def test_a_number_keeps_its_digits() -> None:
    """FEED-ANS-09."""
    assert [number(text) for text in ("7.50", ".5", "1e3")] == ["7.50", "0.5", "1E+3"]


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_are_exact(moment: datetime) -> None:
    """FEED-PAY-04."""
    found = micros(moment.isoformat())
    assert found is not None
    assert divmod(found, 1_000_000)[1] == moment.microsecond
