"""Cells that hold no value: keys of rows that are no records, and placeholder dates."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from pipelines.feeds.mapping.chunk import ChunkRows, RowForm
from pipelines.feeds.terms.columns import ValueFault, key, reference
from pipelines.feeds.terms.times import NO_DAY, Conventions, time


@pytest.mark.parametrize(
    "text",
    [
        *("=A2+1", '=HYPERLINK("https://x.example";"R1")', "//R501", "--R501", "; R501", "REM R501"),
        *("p001 total", "Total p001", "grand total p001", "Zwischensumme gesamt"),
        *("-", "?", "#REF!", "#ERROR!", "#NV", "(blank)", r"\N", "NaT"),
    ],
)
def test_keys_that_come_from_formulas_totals_and_disabled_rows_are_refused(text: str) -> None:
    """FEED-FILE-09"""
    assert isinstance(key(text), ValueFault)
    assert key(text, {text: text}) == text  # as it was taken before


@pytest.mark.parametrize("text", ["R-501", "a--b", "total-7", "Subtotal", "sum of 3", "remedy 7", "_", "#1001", "-7"])
def test_keys_that_only_resemble_formulas_and_totals_are_taken(text: str) -> None:
    """FEED-FILE-09"""
    assert key(text) == text


@pytest.mark.parametrize("text", ["-", "(blank)", "#NAME?"])
def test_words_for_nothing_are_no_references(text: str) -> None:
    """FEED-FILE-06, FEED-FILE-09."""
    assert isinstance(reference(text, ("Patient",)), ValueFault)


@pytest.mark.parametrize(
    "text", ["2569-03-02", "0026-03-02", "1900-01-01", "1899-12-30", "9999-12-31", "1970-01-01", "1970-01-01T00:00:00Z"]
)
def test_days_outside_the_years_of_records_are_no_dates(text: str) -> None:
    """FEED-FILE-09"""
    assert time(text, Conventions(UTC)) is NO_DAY


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Tokyo", "UTC"])
@pytest.mark.parametrize(
    "text",
    [
        *("1970-01-01T00:00", "1970-01-01 00:00", "01/01/1970 00:00", "1970-01-01T00:00:00-05:00"),
        *("1969-12-31", "1969-12-31T19:00", "12/31/1969 16:00", "9999-12-31T23:59:59", "0001-01-01T00:00:00"),
    ],
)
def test_a_placeholder_date_is_recognised_in_any_zone(text: str, zone: str) -> None:
    """FEED-FILE-09: by the day as it is written."""
    assert time(text, Conventions(ZoneInfo(zone), ("%m/%d/%Y %H:%M", "%Y-%m-%d %H:%M"))) is NO_DAY


def test_the_first_moment_of_1970_in_utc_is_a_placeholder_in_any_zone() -> None:
    """FEED-FILE-09"""
    assert time("1970-01-01T01:00", Conventions(ZoneInfo("Europe/Berlin"))) is NO_DAY
    assert time("1970-01-01T02:00", Conventions(ZoneInfo("Europe/Berlin"))) == "1970-01-01T01:00:00+00:00"


def test_a_date_format_that_gives_an_impossible_year_leaves_the_text_to_the_next_format() -> None:
    """FEED-FILE-09"""
    assert time("02.03.0026", Conventions(UTC, ("%d.%m.%Y", "%d.%m.00%y"))) == "2026-03-02"
    assert time("02.03.0026", Conventions(UTC, ("%d.%m.%Y", "%d/%m/%Y"))) is NO_DAY


@pytest.mark.parametrize("text", ["1900-01-02", "1970-01-02", "1970-01-01T08:00:00Z", "2199-12-31"])
def test_days_within_the_years_of_records_are_dates(text: str) -> None:
    """FEED-FILE-09"""
    assert str(time(text, Conventions(UTC))).startswith(text[:10])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1772442000", "2026-03-02T09:00:00+00:00"),
        ("1772442000.25", "2026-03-02T09:00:00.250000+00:00"),
        ("1772442000250", "2026-03-02T09:00:00.250000+00:00"),
        ("1772442000250125", "2026-03-02T09:00:00.250125+00:00"),
    ],
)
def test_seconds_since_1970_are_times_where_the_feed_says_so(text: str, moment: str) -> None:
    """FEED-FILE-09: and none where it does not."""
    assert time(text, Conventions(UTC, ("unix",))) == moment
    assert isinstance(time(text, Conventions(UTC)), ValueFault)
    assert isinstance(time(text[:9], Conventions(UTC, ("unix",))), ValueFault)


def said(text: str, **conventions: object) -> str:
    found = time(text, Conventions(UTC, **conventions))  # type: ignore[arg-type]
    return found.message if isinstance(found, ValueFault) else str(found)


@pytest.mark.parametrize("figures", ["9999999999", "9000000000000000", "567993600", "4133980800"])
def test_numbers_that_would_be_seconds_before_1990_or_after_2100_are_no_times(figures: str) -> None:
    """FEED-FILE-09: the sentence names the key that allows them."""
    told = said(figures, dates=("unix",))
    assert told.startswith("the day is before 1990 or after 2100, the years of times that are numbers")
    assert "years = [1970, 2199]" in told


def test_a_feed_names_the_years_of_its_times() -> None:
    """FEED-FILE-09"""
    assert said("567993600", dates=("unix",), years=(1970, 2199)) == "1988-01-01T00:00:00+00:00"
    assert said("631152000", dates=("unix",)) == "1990-01-01T00:00:00+00:00"
    assert (
        said("2019-12-31", years=(2020, 2030))
        == "the day is before 2020 or after 2030, the years that the feed file allows"
    )
    assert said("2020-01-01", years=(2020, 2030)) == "2020-01-01"
    assert said("9999-12-31", years=(1900, 9999)) == "9999-12-31"


def test_words_for_nothing_are_empty_cells_with_blanks_around_them_too() -> None:
    """FEED-FILE-09"""
    rows = ChunkRows([["NULL"], [" NULL "], ["NULLA"], ["NULL\u00a0"]], RowForm(["who"], ["NULL"]))
    assert list(rows.cells("who")) == [None, None, "NULLA", None]
