"""Payments with a claim are said, with number and sum, wherever a person looks before or after they are sent."""

import duckdb
import pytest

from pipelines.feeds.drafting.draft import draft

HEADER = "payment_id,patient_id,amount,paid_on,claim_id,method\n"
CASH = "3,p1,5.00,2026-03-03,,cash\n"
ROWS = f"1,p1,10.00,2026-03-01,c1,copay\n2,p1,20.50,2026-03-02,c2,copay\n{CASH}{CASH}"
NOT_HELD = "copayments, which are not held against the balance"
SAID = f"2 of the payments, 30.50, have a claim: {NOT_HELD}; without a claim: 1, 5.00"


def test_a_draft_takes_no_claim_until_somebody_has_decided(tmp_path):
    """LEDGER-23: a careful reader who leaves the lines as they are loads no copayment."""
    (tmp_path / "payments.csv").write_text(HEADER + ROWS)
    text = draft(tmp_path / "payments.csv")
    taken = [line for line in text.splitlines() if "claim_id" in line and not line.startswith("#")]
    assert taken == []
    assert "# DECIDE: a payment with a claim is a copayment and is not held against the balance" in text
    assert '# claim_id = { column = "claim_id", when = { "method" = "..." } }' in text
    (tmp_path / "payments.csv").write_text("payment_id,patient_id,amount,paid_on\n1,p1,10.00,2026-03-01\n")
    assert "copayment" not in draft(tmp_path / "payments.csv")


@pytest.mark.publishes
def test_an_import_says_its_copayments_and_so_do_the_tables(home, asked, chartferry, target):
    """LEDGER-23"""
    (home / "inbox/payments.csv").write_text(HEADER + ROWS)
    assert SAID in chartferry("import", "--dry-run")[1]
    code, out, _ = chartferry("import")
    assert (code, SAID in out) == (0, True)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        for name in ("import_batch", "import_run"):
            found = tables.sql(f"SELECT copayments, amount_copayments::varchar FROM {name}").fetchall()
            assert found == [(2, "30.50")]
        payments = tables.sql("SELECT source_key, kind, claim_id FROM payment ORDER BY source_key").fetchall()
        assert payments == [("1", "copayment", "c1"), ("2", "copayment", "c2"), ("3", "balance payment", None)]
    (home / "inbox/payments-2.csv").write_text(HEADER + ROWS)
    totals = asked("import")["totals"]
    assert (totals["copayments"], totals["amount_copayments"], totals["unchanged"]) == (2, 3050, 3)


def test_feeds_check_says_what_a_claim_does_and_counts_those_of_a_sample(tmp_path, home, chartferry):
    """LEDGER-23"""
    (tmp_path / "payments.csv").write_text(HEADER + ROWS)
    code, out, _ = chartferry("feeds", "check", "--sample", tmp_path / "payments.csv")
    assert code == 0
    assert "a payment with a claim_id is a copayment, which is not held against the patient's balance" in out
    said = "2 of these are copayments, 30.50 in all: they are not held against the balance; without a claim: 2, 10.00"
    assert said in out
    (tmp_path / "payments.csv").write_text(HEADER + CASH)
    assert "of these are copayments" not in chartferry("feeds", "check", "--sample", tmp_path / "payments.csv")[1]
