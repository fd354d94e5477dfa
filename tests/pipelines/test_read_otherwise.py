"""A file that a mended feed reads otherwise: the counts of its batch add up."""

import pytest

from tests.pipelines.test_rejects import Practice

FEED = """
kind = "payments"
files = ["till*.csv"]
{more}
[columns]
payment_id = "id"
patient_id = "patient"
amount = {amount}
paid_on = "day"
"""
FILE = (
    "id,patient,amount,day,type\na,p1,11.00,2026-03-01,SALE\nb,p1,12.00,2026-03-01,SALE\nc,p1,13.00,2026-03-01,VOID\n"
)
SALES, VOIDS, NONE = '[take]\ntype = "SALE"', '[take]\ntype = "VOID"', '[take]\ntype = "Sale"'
AMOUNT, NO_AMOUNT = '"amount"', '{ column = "amount", before = "x" }'
COUNTED = "SELECT lines, header, not_taken, records, accepted, rejected, amount_received, amount_accepted FROM batch"


@pytest.mark.parametrize(
    ("first", "then", "counts"),
    [
        ((NONE, AMOUNT), (SALES, AMOUNT), (4, 1, 1, 2, 2, 0, 2300, 2300)),
        (("", NO_AMOUNT), ("", AMOUNT), (4, 1, 0, 3, 3, 0, 3600, 3600)),
        ((VOIDS, AMOUNT), (SALES, AMOUNT), (4, 1, 0, 3, 3, 0, 3600, 3600)),
        (("", AMOUNT), (SALES, AMOUNT), (4, 1, 0, 3, 3, 0, 3600, 3600)),
    ],
    ids=["rows that were not taken", "amounts that were none", "other rows", "fewer rows"],
)
@pytest.mark.then_published
def test_rows_of_every_reading_are_counted(first, then, counts, home, target, chartferry):
    """LEDGER-10: else accepted rows are more than records, and those rejected fewer than none."""
    practice = Practice(home, target, chartferry)
    (home / "feeds").mkdir()
    for more, amount in (first, then):
        (home / "feeds" / "till.toml").write_text(FEED.replace("{more}", more).replace("{amount}", amount))
        practice.take(FILE, "till.csv")
    assert practice.rows(COUNTED) == [counts]
