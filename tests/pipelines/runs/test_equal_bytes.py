"""Equal bytes under two names that two importers take at once: one batch, whose records are made once."""

import json
from errno import EPERM
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipelines.cli import run
from pipelines.runs import batch, received, validating

ROWS = "payment_id,patient_id,amount,paid_on,claim_id\nA,p1,10.00,2026-03-01,\nB,p2,,2026-03-01,\n"


def importer(home, capsys):
    def imported(name, total=None):
        (home / "inbox" / name).write_text(ROWS)
        if total:
            (home / "inbox" / f"{name}.control.json").write_text(json.dumps({"rows": total}))
        code = run(["--home", str(home), "import", str(home / "inbox" / name), "--json"])
        [told] = json.loads(capsys.readouterr().out)["batches"]
        return code, told["file"], told["state"], told["counts"].get("created", 0) + told["counts"].get("unchanged", 0)

    return imported


@pytest.mark.alike
@pytest.mark.parametrize("step", ["begin", "validate_run", "load_run", "end"])
def test_two_simultaneous_imports_of_equal_bytes_both_report_the_one_batch(home, target, capsys, monkeypatch, step):
    """STATE-HOME-07, LEDGER-01: whenever the second begins. It used to remove the copy that the first was reading."""
    imported = importer(home, capsys)

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


@pytest.mark.alike
@pytest.mark.parametrize("total", [None, 9])
@pytest.mark.parametrize(
    ("module", "step"),
    [(batch, "begin"), (batch, "validate_run"), (received, "validate"), (validating, "write_places")],
)
def test_an_import_reads_the_file_it_received_although_another_names_its_bytes_by_another_format(
    home, target, capsys, monkeypatch, module, step, total
):
    """STATE-HOME-07, CLI-IMPORT-06: the copy is renamed meanwhile, with the control totals of the first."""
    imported = importer(home, capsys)
    goes_on, told = getattr(module, step), []

    def late(*given, **how):
        patched.setattr(module, step, goes_on)
        told.append(imported("payments-0.ndjson"))
        return goes_on(*given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(module, step, late)
        told.append(imported("payments-1.csv", total))
    second, first = told
    assert first == ((4, "payments-1.csv", "stopped", 0) if total else (3, "payments-1.csv", "finished", 1))
    assert second == (4 if total else 3, "payments-0.ndjson", "stopped" if total else "finished", 0)
    assert len(target.of("PaymentNotice")) == (0 if total else 1)


def test_a_file_is_read_where_its_disk_has_no_links(home, target, capsys, monkeypatch):
    """STATE-HOME-07: its control totals, too."""
    monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=OSError(EPERM, "no links")))
    assert importer(home, capsys)("payments-1.csv", 9) == (4, "payments-1.csv", "stopped", 0)
    assert importer(home, capsys)("payments-1.csv", 2) == (3, "payments-1.csv", "finished", 1)
