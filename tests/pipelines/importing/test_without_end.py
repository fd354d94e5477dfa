"""Unfinished batches: an import of the inbox continues them, an import of other files names them."""

import json
import shutil

import pytest

from pipelines.home.exits import INTERRUPTED
from tests.support.ledgers import lose_ledger

PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id\n"


@pytest.fixture(params=["runs.loading.load", "ledger.ledger.Ledger.start_run"])
def killed(request, home, chartferry, monkeypatch):
    """An import of the inbox that ended before its load, or as soon as its batch was noted."""

    def dies(*_, **__):
        raise KeyboardInterrupt

    (home / "inbox" / "payments-1.csv").write_text(PAYMENTS + "A,p1,10.00,2026-03-01,\n")
    with monkeypatch.context() as patched:
        patched.setattr(f"pipelines.{request.param}", dies)
        assert chartferry("import", home / "inbox")[0] == INTERRUPTED
    assert list((home / "inbox").iterdir()) == []


def test_the_inbox_named_by_its_path_is_the_inbox(killed, home, target, asked):
    """LEDGER-27: its files are in their batches by then."""
    assert asked("import", home / "inbox")["totals"]["created"] == 1
    assert asked("import", home / "inbox")["batches"] == []
    assert len(target.of("PaymentNotice")) == 1


def test_a_file_of_the_inbox_named_by_its_path_goes_on(killed, home, target, chartferry, asked):
    """LEDGER-27: it is in its batch by then; one that never was, or has come to its end, is not there."""
    path = home / "inbox" / "payments-1.csv"
    assert asked("import", path)["totals"]["created"] == 1
    for gone in (path, home / "inbox" / "payments-9.csv"):
        code, out, err = chartferry("import", gone)
        assert (code, f"{gone.name}: there is no such file" in out + err) == (4, True)
    assert len(target.of("PaymentNotice")) == 1


def test_an_import_of_other_files_names_unfinished_batches(killed, home, target, chartferry, asked):
    """LEDGER-27"""
    other = home.parent / "payments-2.csv"
    other.write_text(PAYMENTS + "B,p2,5.00,2026-03-03,\n")
    code, out, _ = chartferry("import", other)
    [batch] = [
        each.name for each in (home / "batches").iterdir() if "payments-1.csv" in str(list(each.glob("source/*")))
    ]
    assert code == 0
    assert f"note: {batch} (payments-1.csv) is not finished yet; chartferry import goes on with it" in out.splitlines()
    assert asked("import")["totals"]["created"] == 1
    assert asked("import", other)["without_end"] == []
    assert len(target.of("PaymentNotice")) == 2


def test_an_unfinished_batch_whose_folder_is_not_in_this_home_is_named(killed, home, target, chartferry, asked):
    """LEDGER-27, SCALE-03: its home was restored from a backup, or it came in at a machine that is lost."""
    [folder] = (home / "batches").glob("payments-*")
    shutil.rmtree(folder)
    code, out, _ = chartferry("import")
    named = f"note: unfinished files that are not in this home: payments-1.csv ({folder.name}); run chartferry"
    assert (code, named in out) == (0, True)
    assert asked("import")["not_here"] == [folder.name]
    (home / "inbox" / "payments-1.csv").write_text(PAYMENTS + "A,p1,10.00,2026-03-01,\n")
    again = asked("import")
    assert (again["totals"]["created"], again["not_here"]) == (1, [])
    assert asked("import")["not_here"] == []


def test_a_file_of_which_no_run_has_begun_is_in_the_status(home, target, chartferry, asked, monkeypatch):
    """CLI-CMD-03: a command took it from the inbox and failed at once."""

    def fails(*_, **__):
        raise OSError

    (home / "inbox" / "payments-1.csv").write_text(PAYMENTS + "A,p1,10.00,2026-03-01,\n")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.batch.begin", fails)
        assert chartferry("import")[0] == 6
    [batch] = [each.name for each in (home / "batches").iterdir() if each.name.startswith("payments-")]
    for named in ((), (batch,)):
        code, out, _ = chartferry("status", *named)
        said = (
            f"received, but the ledger has no run of it: payments-1.csv ({batch}); chartferry import continues with it"
        )
        assert (code, out.splitlines()) == (0, [said])
        found = json.loads(chartferry("status", *named, "--json")[1])
        assert [(each["batch_id"], each["file_name"]) for each in found["received"]] == [(batch, "payments-1.csv")]
    assert chartferry("status", "payments-0")[0] == 4
    assert asked("import")["totals"]["created"] == 1
    found = json.loads(chartferry("status", "--json")[1])
    assert (found["received"], [each["state"] for each in found["batches"]]) == ([], ["finished"])


def test_status_says_that_the_ledger_has_no_run_of_a_received_file_not_that_none_began(home, target, chartferry):
    """CLI-CMD-03: its payment is at the target."""
    (home / "inbox" / "payments-1.csv").write_text(PAYMENTS + "A,p1,10.00,2026-03-01,\n")
    assert chartferry("import")[0] == 0
    lose_ledger(home)
    (home / "inbox" / "payments-2.csv").write_text(PAYMENTS + "B,p1,20.00,2026-03-01,\n")
    assert chartferry("import", home / "inbox" / "payments-2.csv")[0] == 0
    (said,) = [line for line in chartferry("status")[1].splitlines() if line.startswith("received")]
    assert "the ledger has no run of it: payments-1.csv" in said
    assert chartferry("import")[0] == 0
    assert len(target.of("PaymentNotice")) == 2
