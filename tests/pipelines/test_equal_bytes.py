"""Equal bytes under two names that two importers take at once: one batch, whose records are made once."""

import json

import pytest

from pipelines.cli import run
from pipelines.runs import batch

ROWS = "payment_id,patient_id,amount,paid_on,claim_id\nA,p1,10.00,2026-03-01,\nB,p2,,2026-03-01,\n"


@pytest.mark.parametrize("step", ["begin", "validate_run", "load_run", "end"])
def test_whenever_the_second_takes_them_both_tell_the_truth(home, target, capsys, monkeypatch, step):
    """STATE-HOME-07, LEDGER-01: the copy that the first one reads was removed, and its file told as gone."""

    def imported(name):
        (home / "inbox" / name).write_text(ROWS)
        code = run(["--home", str(home), "import", str(home / "inbox" / name), "--json"])
        [told] = json.loads(capsys.readouterr().out)["batches"]
        return code, told["file"], told["state"], told["counts"]["created"] + told["counts"]["unchanged"]

    goes_on, told = getattr(batch, step), []

    def late(*given, **how):
        patched.setattr(batch, step, goes_on)
        told.append(imported("payments-0.csv"))
        return goes_on(*given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(batch, step, late)
        told.append(imported("payments-1.csv"))
    assert told == [(3, name, "finished", 1) for name in ("payments-0.csv", "payments-1.csv")]
    assert len(target.of("PaymentNotice")) == 1
    [folder] = (home / "batches").glob("payments-*")
    [copy] = (folder / "source").iterdir()
    assert copy.read_text() == ROWS
    assert list((home / "inbox").iterdir()) == []
