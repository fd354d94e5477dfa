"""Names and hashes that ledgers, journals and targets keep are the same under each Python, and each Unicode.

Another value would be another record, which is loaded a second time. Hashes of content are in the golden folders.
"""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.terms.columns import ValueFault, key
from pipelines.ledger.lease import utc_text
from pipelines.ledger.rows import reject_id
from pipelines.validation.content import canonical

FEED = """
name = "till"
source = "till-1"
kind = "payments"
files = ["till-*.csv"]
timezone = "Europe/Berlin"
dates = ["%d.%m.%Y"]

[columns]
payment_id = { column = "Beleg Nr. \u00e4" }
patient_id = "Patient"
amount = "Betrag"
paid_on = "Tag"
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("pay-1", "pay-1"), (" INV  1\t", "INV 1"), ("Z\u00a0\u20097", "Z 7"), ("\ufeffk-1\u200b", "k-1")),
        *(("Mu\u0308ller-1", "M\u00fcller-1"), ("\u1100\u1161\u11a8-9", "\uac01-9"), ("\u212b1", "\u00c51")),
        *(
            ("\ufb01-\u0663-\u00b2", "\ufb01-\u0663-\u00b2"),
            ("\u0958", "\u0915\u093c"),
            ("K-\U0001f600", "K-\U0001f600"),
        ),
        *(('="007"', "007"), ('"7-a"', "7-a"), ("k~2", "k~2")),
    ],
)
def test_the_form_of_a_key_is_the_same_under_every_python(text: str, found: str) -> None:
    """FEED-FILE-09, LEDGER-13."""
    assert key(text) == found


@pytest.mark.parametrize("sign", ["\u0378", "\U0003fffd", "\ue000", "\u200b"])
def test_a_character_that_later_unicode_may_compose_is_refused_in_a_key(sign: str) -> None:
    """FEED-FILE-09: otherwise the same key could have two forms under different versions."""
    assert isinstance(key(f"k{sign}k"), ValueFault)


def test_the_text_of_a_content_is_the_same_under_every_python() -> None:
    """LEDGER-13: its hash is made of this text."""
    numbers = [Decimal(text) for text in ("1.50", "1E+2", "-0.0", "0.001", "12345678901234567890.10")]
    assert canonical({"b": numbers, "a": ["\u00e4\U0001f600\u2028\x7f", None, True, 10**15]}) == (
        '{"a":["\u00e4\U0001f600\u2028\x7f",null,true,1000000000000000],"b":[15E-1,1E2,0E0,1E-3,123456789012345678901E-1]}'
    )


def test_the_ids_of_rejects_and_hashes_of_feeds_are_the_same_under_every_python(tmp_path: Path) -> None:
    """LEDGER-13."""
    (tmp_path / "till.toml").write_text(FEED, encoding="utf-8")
    feed = load_feed(tmp_path / "till.toml")
    assert reject_id("https://chart/fhir", "till-0123456789ab", 7, "Beleg \u00e4") == "0caef36c43177407"
    assert (feed.hash[:16], feed.key_hash[:16]) == ("ca23c73c4a6260cd", "2f341630ea3966e6")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 3, 1, 12, 30, tzinfo=UTC), "2026-03-01T12:30:00.000000Z"),
        (datetime(2026, 3, 1, 0, 30, 0, 5, tzinfo=timezone(timedelta(hours=2))), "2026-02-28T22:30:00.000005Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_the_text_of_a_moment_is_the_same_under_every_python(moment: datetime, text: str) -> None:
    assert utc_text(moment) == text
