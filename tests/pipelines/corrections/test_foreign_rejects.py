"""Files of rejects that this home does not know, and commands on batches that were purged already."""

import pytest

from tests.support.exports import TASKS, feed_file
from tests.support.fake_target import FakeTarget, serving
from tests.support.ledgers import decisions

PAYMENTS = "payment_id,patient_id,amount,paid_on\n"


def test_a_file_whose_reject_ids_are_unknown_says_so(home, chartferry):
    """CLI-CMD-05: it has no name of a feed, and answers nothing that was set aside here."""
    (home / "inbox" / "corrected.csv").write_text(
        "_reject_id,_reasons," + PAYMENTS + "0123456789abcdef,,k1,p1,1,2026\n"
    )
    code, said, _ = chartferry("import")
    assert code == 4
    assert "corrected.csv: its _reject_id are those of no reject in this ledger" in said
    assert (home / "inbox" / "corrected.csv").exists()


def test_a_batch_that_was_purged_is_not_purged_again(home, asked, chartferry):
    """CLI-CMD-16: and no second decision is put on record."""
    (home / "inbox" / "payments.csv").write_text(PAYMENTS + "k1,p1,1.00,2026-01-01\n")
    [batch] = asked("import")["batches"]
    assert "its source rows are removed" in chartferry("purge", batch["batch_id"])[1]
    code, said, _ = chartferry("purge", batch["batch_id"])
    assert (code, "its source rows were removed before" in said) == (0, True)
    assert chartferry("status", batch["batch_id"])[1].count("decision: ") == 1


@pytest.mark.parametrize("why", ["1 of its rejects is open", "not finished"])
def test_source_rows_that_another_target_needs_are_not_purged(home, asked, chartferry, monkeypatch, why):
    """CLI-CMD-16: the target that it was imported into first has all of the file."""
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS + "k1,p1,1.00,2026-01-01\n")
    [batch] = asked("import", path)["batches"]
    with serving(FakeTarget(additions=False)) as other:
        other.valid_tokens.add("fixed")
        other.refuse, other.faults = lambda _: "open" in why, ["lost_before"] * ("open" not in why)
        monkeypatch.setenv("FHIR_BASE_URL", other.url)
        assert asked("import", path)["totals"]["created"] == 0
        code, _, said = chartferry("purge", batch["batch_id"])
    assert (code, why in said) == (4, True)
    assert list(home.glob("batches/*/source/payments.csv"))


def test_a_correction_whose_feed_file_is_gone_is_not_imported_by_another_feed(home, target, asked, chartferry):
    """CLI-CMD-05: another source would make other records of these keys."""
    till = feed_file(home, "till", 'kind = "payments"\nsource = "till"\nfiles = ["till*"]\n', PAYMENTS)
    (home / "inbox" / "till.csv").write_text(PAYMENTS + "k1,p1,x,2026-01-01\n")
    assert asked("import")["exit_code"] == 3
    assert chartferry("rejects", "export", "--out", home.parent / "out")[0] == 0
    [given] = (home.parent / "out").glob("*.csv")
    (home / "inbox" / "payments.csv").write_text(given.read_text().replace(",x,", ",1.00,"))
    described = till.read_text()
    till.unlink()
    code, said, _ = chartferry("import")
    assert (code, "payments.csv: answers rejects of the feed till, which no feed file describes" in said) == (4, True)
    assert not target.of("PaymentNotice")
    till.write_text(described)
    assert asked("import")["totals"]["created"] == 1
    assert asked("verify")["differences"] == []


def test_a_purged_batch_is_not_loaded_again_before_its_file_is_back(home, target, asked, chartferry):
    """CLI-CMD-18: and no decision is put on record."""
    text = TASKS + "t1,p1,call,requested,a\n"
    (home / "inbox" / "tasks.csv").write_text(text)
    [batch] = asked("import")["batches"]
    assert chartferry("undo", batch["batch_id"])[0] == 0
    assert chartferry("purge", batch["batch_id"])[0] == 0
    code, _, said = chartferry("import", "--again", batch["batch_id"])
    assert (code, "import its file again, then repeat the command" in said) == (4, True)
    assert "import --again" not in [command for command, _, _ in decisions(home)]
    (home / "inbox" / "tasks.csv").write_text(text)
    asked("import")
    assert asked("import", "--again", batch["batch_id"])["totals"]["created"] == 1
    assert [body["status"] for body in target.of("Task")] == ["cancelled", "requested"]
