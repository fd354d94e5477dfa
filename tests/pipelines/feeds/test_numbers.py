"""How exports write amounts: signs, separators, minus; and what is no amount."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.feeds.terms.columns import ValueFault, amount, cents, number
from pipelines.feeds.terms.numbers import PLAIN, NumberFormat

GERMAN = NumberFormat(",", ".", ("€", "EUR"))
SWISS = NumberFormat(".", "'", ("CHF",))
FRENCH = NumberFormat(",", " ", ("€",))
AMERICAN = NumberFormat(".", ",", ("$", "US$"))
COMMA_ALONE = NumberFormat(",")


@pytest.mark.parametrize(
    ("numbers", "text", "found"),
    [
        (GERMAN, "1.234,50 €", "1234.50"),
        (GERMAN, "EUR 12,5", "12.50"),
        (GERMAN, "1234,5", "1234.50"),
        (GERMAN, "-1.234,50", "-1234.50"),
        (GERMAN, "1.234,50-", "-1234.50"),
        (GERMAN, "(3,00 €)", "-3.00"),
        (SWISS, "1’234.50", "1234.50"),
        (FRENCH, "1 234,50\u00a0€", "1234.50"),
        (FRENCH, "1\u202f234\u202f567,00", "1234567.00"),
        (AMERICAN, "$1,234.50", "1234.50"),
        (AMERICAN, "-US$ .5", "-0.50"),
        (AMERICAN, "$-5", "-5.00"),
        (AMERICAN, "($1,234.50)", "-1234.50"),
        (AMERICAN, "1.500", "1.50"),
        (PLAIN, "−5", "-5.00"),
        (PLAIN, "0.500", "0.50"),
        (PLAIN, "1500.000", "1500.00"),
        (PLAIN, "1.5000", "1.50"),
    ],
)
def test_amounts_are_read_as_their_feed_writes_them(numbers: NumberFormat, text: str, found: str) -> None:
    """FEED-PAY-03, FEED-FILE-08."""
    assert amount(text, numbers) == found


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (GERMAN, "1.23"),
        (GERMAN, "12.34,50"),
        (GERMAN, "0.500"),
        (GERMAN, "1,234.50"),
        (GERMAN, "$ 5"),
        (GERMAN, "5 € EUR"),
        (GERMAN, "--5"),
        (GERMAN, "(-5)"),
        (GERMAN, "(5"),
        (AMERICAN, "1,23.50"),
        (AMERICAN, "$"),
        (COMMA_ALONE, "1,500"),
        (COMMA_ALONE, "-12,000"),
        (PLAIN, "1,234"),
        (PLAIN, "1.500"),
        (PLAIN, "5 %"),
    ],
)
def test_an_amount_that_could_mean_another_is_a_fault(numbers: NumberFormat, text: str) -> None:
    """FEED-FILE-09."""
    assert isinstance(amount(text, numbers), ValueFault)


@pytest.mark.parametrize("text", ["10000000000000.00", "-10000000000000.00", "99999999999999999999.99", "9" * 40])
def test_an_amount_beyond_what_is_counted_is_a_fault(text: str) -> None:
    """FEED-FILE-09: a sum of such amounts would be more than the ledger holds."""
    assert isinstance(amount(text, PLAIN), ValueFault)
    assert cents(text) is None


def test_the_largest_amount_is_counted() -> None:
    """FEED-FILE-09"""
    assert amount("9999999999999.99", PLAIN) == "9999999999999.99"
    assert cents("9999999999999.99") == 10**15 - 1


@given(st.integers(-(10**9), 10**9), st.sampled_from([GERMAN, SWISS, FRENCH, AMERICAN, PLAIN]))
def test_an_amount_written_with_separators_is_read_back_unchanged(cents: int, numbers: NumberFormat) -> None:
    """FEED-PAY-03."""
    value = Decimal(cents).scaleb(-2)
    text = f"{value:,.2f}".translate({ord(","): numbers.thousands, ord("."): numbers.decimal})
    assert Decimal(str(amount(text, numbers))) == value
    assert amount(numbers.written(value), numbers) == f"{value:.2f}"


def test_a_scaled_number_stays_in_the_form_of_its_feed() -> None:
    """FEED-FILE-08."""
    assert GERMAN.scaled("1.250", Decimal("0.01")) == "12,50"
    assert GERMAN.scaled("1234,0", Decimal("0.01")) == "12,34"
    assert GERMAN.scaled("no number", Decimal("0.01")) == "no number"
    assert number("1.234,5", GERMAN) == "1234.5"
    assert isinstance(number("(5)", GERMAN), ValueFault)
