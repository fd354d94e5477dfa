"""A batch that has not ended is shown with what it has come to: by `status`, and in the published tables."""

import json

import duckdb
import pytest

from pipelines.ledger.ledger import Ledger

ROWS = 120
COUNTED = "records accepted rejected created unchanged refused amount_received amount_accepted amount_created".split()


@pytest.fixture
def killed(home, chartferry, monkeypatch):
    """An import that was stopped when some of its bundles were written down."""
    lines = [f"k{n},p{n % 40},{'x' if n == 7 else '1.00'},2026-03-01" for n in range(ROWS)]
    (home / "inbox" / "payments.csv").write_text("\n".join(["payment_id,patient_id,amount,paid_on", *lines]) + "\n")
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 10)
    settle, calls = Ledger.settle, []

    def stopped(*args, **kwargs):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        settle(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "settle", stopped)
        assert chartferry("import")[0] != 0


@pytest.fixture
def status(chartferry):
    return lambda *batch: json.loads(chartferry("status", *batch, "--json")[1])


def shown(asked_status):
    [batch] = asked_status["batches"]
    return batch["state"], {name: batch[name] for name in COUNTED}


def published(home):
    with duckdb.connect(home / "published" / "reports.duckdb", read_only=True) as connection:
        columns = ", ".join(f"{name} * 100" if name.startswith("amount") else name for name in COUNTED)
        [[state, *counts]] = connection.execute(f"SELECT state, {columns} FROM import_batch").fetchall()
        [[created]] = connection.execute("SELECT count(*) FROM import_row WHERE state = 'created'").fetchall()
    return state, dict(zip(COUNTED, map(int, counts), strict=True)), created


@pytest.mark.publishes("import_batch", "import_row")
def test_a_killed_batch_has_its_counts_so_far_in_status_and_tables_and_its_first_outcomes_at_the_end(
    killed, home, chartferry, status
):
    """CLI-CMD-03: lines as validated, rows by what came of them."""
    state, counts = shown(status())
    assert state == "running"
    assert (counts["records"], counts["accepted"], counts["rejected"]) == (ROWS, ROWS - 1, 1)
    assert 0 < counts["created"] < ROWS - 1
    assert counts["amount_created"] == 100 * counts["created"]
    chartferry("reports")
    assert published(home) == ("running", counts, counts["created"])
    assert f"{ROWS:,}" in chartferry("status")[1]
    assert chartferry("import")[0] == 3
    state, counts = shown(status())
    assert (state, counts["created"], counts["unchanged"]) == ("finished", ROWS - 1, 0)
    assert published(home) == ("finished", counts, ROWS - 1)


def test_a_batch_that_was_stopped_twice_counts_its_created_resources_as_created(
    killed, home, target, chartferry, status
):
    """A run that meets resources of an earlier run counts them as unchanged; the batch counts them as created."""
    before = shown(status())[1]["created"]
    target.faults = ["forbidden"] * 1000
    assert chartferry("import")[0] == 6
    state, counts = shown(status())
    assert state == "running"
    assert (counts["created"], counts["unchanged"]) == (before, 0)


def test_rows_without_an_outcome_are_listed_up_to_a_number(killed, chartferry, status, monkeypatch):
    """CLI-CMD-03: the JSON document has them all."""
    [batch] = status()["batches"]
    monkeypatch.setattr("pipelines.importing.status.SHOWN_ROWS", 3)
    [found] = status(batch["batch_id"])["batches"]
    said = chartferry("status", batch["batch_id"])[1].splitlines()
    assert len(found["unsettled"]) > 3
    assert len([line for line in said if line.startswith("line ")]) == 3
    assert any(line.startswith(f"and {len(found['unsettled']) - 3:,} more such rows") for line in said)


def test_status_shows_a_killed_run_as_cut_off_once_a_later_run_has_ended(killed, chartferry, status):
    """CLI-CMD-03"""
    [batch] = status()["batches"]

    def runs():
        return [each for each in chartferry("status", batch["batch_id"])[1].splitlines() if each.startswith("run ")]

    [first] = runs()
    assert first.startswith("run 1: running, since ")
    assert "it is running, or was stopped; the next import continues with it" in first
    assert chartferry("import")[0] == 3
    first, second = runs()
    assert first.startswith("run 1: cut off, since ")
    assert ", no end recorded: " in first
    assert second.startswith("run 2: finished, ")
    assert " to " in second


TILL = 'kind = "payments"\nfiles = "till*"\n[columns]\npayment_id = 1\namount = 3\npaid_on = 4\npatient_id = '


def test_a_retry_under_way_counts_what_it_has_sent_as_accepted(home, target, chartferry, status, monkeypatch):
    """CLI-CMD-03: rows by outcome are never more than the accepted ones."""
    (home / "feeds").mkdir()
    feed = home / "feeds" / "till.toml"
    feed.write_text(f"{TILL}2\n")
    lines = [f"k{number},{who},1.00,2026-03-01" for number, who in enumerate(("p1", "p2", "a guest"))]
    (home / "inbox" / "till.csv").write_text("\n".join(["id,who,sum,on", *lines]) + "\n")
    target.refuse = lambda body: "k1" in json.dumps(body)
    chartferry("import")
    counts = shown(status())[1]
    assert [counts[name] for name in ("accepted", "rejected", "created", "refused")] == [2, 1, 1, 1]
    feed.write_text(f'{TILL}{{ column = 2, values = {{ "a guest" = "p3" }} }}\n')
    target.refuse = lambda body: False
    under_way = []

    def looked(*_):
        under_way.append(shown(status())[1])
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.runs.batch.end", looked)
    chartferry("rejects", "retry")
    [counts] = under_way
    assert [counts[name] for name in ("records", "accepted", "rejected", "created", "refused")] == [3, 3, 0, 3, 0]
    assert counts["amount_accepted"] == counts["amount_created"] == 300
