"""Purge by hand and by age: source rows go, and what is known of them stays."""

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.corrections.retention import purge_older
from pipelines.ledger.ledger import Ledger
from tests.support.exports import payments, put
from tests.support.fake_target import FakeTarget, serving
from tests.support.ledgers import decisions


def test_purge_removes_source_rows_and_keeps_ledger_and_counts(home, chartferry, asked):
    """CLI-CMD-16, CLI-CMD-19"""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    before = chartferry("status", batch)[1]
    assert chartferry("purge", batch) == (0, f"{batch}: its source rows are removed\n", "")
    left = sorted(path.name for path in (home / "batches" / batch).rglob("*") if path.is_file())
    assert left == ["manifest.json", "sha256"]
    after = chartferry("status", batch)[1].splitlines()
    assert [line for line in after if not line.startswith("decision:")] == before.splitlines()
    assert decisions(home) == [("purge", batch, None)]
    assert asked("import")["exit_code"] == 0
    assert chartferry("purge", "none")[0] == 4


@pytest.mark.parametrize("left", ["source/*", "run-1/accepted.parquet", "run-1/rejects.parquet"])
def test_a_purge_that_was_killed_is_ended_by_the_next_one(home, chartferry, asked, monkeypatch, left):
    """CLI-CMD-16: at whichever file it was killed; purges by hand and by age."""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    folder = home / "batches" / batch
    [kept] = folder.glob(left)
    rows = kept.read_bytes()
    for again in (("purge", batch), ("import",)):
        chartferry("purge", batch)
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(rows)
        monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0" if again == ("import",) else "")
        assert "its source rows are removed" in "".join(map(str, chartferry(*again)))
        assert not kept.exists()


def test_purge_refuses_a_batch_that_is_not_finished_or_has_open_rejects(home, target, chartferry, asked, doubt):
    """CLI-CMD-16"""
    code, _, err = chartferry("purge", doubt)
    assert code == 4
    assert "not finished" in err
    target.additions = True
    payments(home, ("k9", "p1", "abc"))
    batch = next(b["batch_id"] for b in asked("import")["batches"] if b["batch_id"] != doubt)
    code, _, err = chartferry("purge", batch)
    assert code == 4
    assert "1 of its rejects is open" in err


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("is_refused", "said"), [(False, "not finished"), (True, "1 of its rejects is open")])
def test_purge_refuses_rows_that_another_target_still_needs(
    at, is_refused, said, home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-16"""
    with serving(FakeTarget(additions=False)) as other:
        target.additions = False
        other.valid_tokens.add("fixed")
        troubled = (target, other)[at]
        troubled.refuse, troubled.faults = (lambda _: is_refused), [] if is_refused else ["lost_before"]
        for each in (target, other):
            monkeypatch.setenv("FHIR_BASE_URL", each.url)
            payments(home, ("k1", "p1", "1.00"))
            batch = asked("import")["batches"][0]["batch_id"]
        code, _, err = chartferry("purge", batch)
    assert (code, said in err) == (4, True), err


def test_purge_refuses_a_file_whose_correction_was_wrong_too(home, chartferry, asked, monkeypatch):
    """CLI-CMD-16, CLI-CMD-04: only the batch with the newest row of the reject is needed, not the first one."""
    payments(home, ("k1", "p1", "wrong"))
    first = asked("import")["batches"][0]["batch_id"]
    [file] = json.loads(chartferry("rejects", "export", "--json")[1])["files"]
    put(home, "payments-again.csv", Path(file["file"]).read_text().replace(",wrong,", ",xyz,"))
    second = asked("import")["batches"][0]["batch_id"]
    code, _, err = chartferry("purge", second)
    assert (code, err) == (
        4,
        f"chartferry: {second}: 1 of its rejects is open: export and correct, or discard it first\n",
    )
    assert chartferry("purge", first)[0] == 0
    assert "xyz" in Path(json.loads(chartferry("rejects", "export", "--json")[1])["files"][0]["file"]).read_text()
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    _, _, err = chartferry("import")
    assert f"older than 0 days, and kept: {second}: 1 of its rejects is open" in err


def test_an_import_names_the_first_of_many_files_that_are_kept(home, chartferry, monkeypatch):
    """Each open reject keeps its file, and a clinic may leave some for months."""
    for number in range(7):
        put(home, f"payments-{number}.csv", f"payment_id,patient_id,amount,paid_on\nk{number},p1,x,2026-03-01\n")
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    _, _, err = chartferry("import")
    kept = [line for line in err.splitlines() if "and kept" in line]
    assert (len(kept), kept[-1]) == (6, "older than 0 days, and kept: 2 more files; see chartferry status")


def test_old_batches_are_purged_when_a_retention_is_set(home, asked, monkeypatch):
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "1")
    asked("import")
    assert (home / "batches" / batch / "source").exists()
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    (home / "rehearsals").mkdir()
    (home / "rehearsals" / "old.json").write_text("{}")
    asked("import")
    assert not (home / "batches" / batch / "source").exists()
    assert not list((home / "rehearsals").iterdir())


@pytest.mark.parametrize("elsewhere", [True, False])
def test_source_rows_are_kept_while_a_batch_is_young_at_one_of_its_targets(elsewhere, home, target, asked, monkeypatch):
    """CLI-CMD-16: all targets share the rows, so that the purge is recorded for each. Its last run counts."""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    with serving(FakeTarget(additions=False)) as other, closing(Ledger.open(home / "ledger.db")) as ledger:
        first = ledger.clock()
        other.valid_tokens.add("fixed")
        monkeypatch.setenv("FHIR_BASE_URL", other.url if elsewhere else target.url)
        payments(home, ("k1", "p1", "1.00"))
        asked("import")
        rows = ledger.batches()
        assert [row["batch_id"] for row in rows] == [batch] * (1 + elsewhere)
        now = ledger.clock()
        between = (now - first) / timedelta(days=1)
        for days, done in ((between, {}), (0.0, {batch: None})):
            assert purge_older(home, ledger, rows[0]["target"], days, now) == done
        assert {row["target"] for row in ledger.decisions()} == {row["target"] for row in rows}
    assert not (home / "batches" / batch / "source").exists()
