"""What Dagster is told of amounts: sums of so many records that they are nobody's."""

import os
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipelines.dagster import metadata
from pipelines.dagster.checks import LoadedBatch, every_cent_is_accounted_for, the_ledger_says_the_same
from pipelines.dagster.telling import tell
from pipelines.feeds.files.catalog import home_catalog
from pipelines.reports import figures
from pipelines.runs.run import Result
from pipelines.session.opening import open_ledger
from pipelines.validation.outcome import Validated

AMOUNTS = ("amount_received", "amount_accepted", "amount_created")


def told(amounts, accepted, created):
    """The amounts that Dagster is told of a loaded batch of 100 records, each of 1.00. amounts: 0 if not counted."""
    sums = {"amount_received": amounts or 100, "amount_accepted": accepted, "amount_created": created}
    counts = {"records": 100, "accepted": accepted, "created": created} | {name: n * 100 for name, n in sums.items()}
    result = Result("b", 1, "payments", "payments.csv", "finished", counts, amounts=amounts)
    return {name for name in metadata.of_loaded(result, "t", money=True) if name in AMOUNTS}


@pytest.mark.parametrize(
    ("amounts", "accepted", "created", "shown"),
    [
        (1, 1, 1, set()),
        (4, 4, 4, set()),
        (5, 5, 5, {"amount_received", "amount_accepted", "amount_created"}),
        (100, 99, 99, {"amount_received"}),
        (100, 100, 98, {"amount_received", "amount_accepted"}),
        (100, 95, 90, {"amount_received", "amount_accepted", "amount_created"}),
        (100, 95, 93, {"amount_received", "amount_accepted"}),
        (100, 5, 2, {"amount_received", "amount_accepted"}),
        (2, 2, 2, set()),
        (91, 90, 90, {"amount_received"}),
        (90, 90, 90, {"amount_received", "amount_accepted", "amount_created"}),
        (0, 90, 85, {"amount_received", "amount_created"}),
        (0, 90, 90, {"amount_received"}),
        (0, 4, 4, set()),
    ],
)
def test_a_sum_or_a_difference_of_few_amounts_is_not_told(amounts, accepted, created, shown):
    """REPORT-26: rejected records without an amount hide nobody."""
    assert told(amounts, accepted, created) == shown


@pytest.mark.parametrize("amounts", [1, 5])
def test_rejects_with_an_amount_are_told_from_those_without(amounts, home, chartferry):
    """REPORT-26: where Dagster tells what the command line did."""
    rows = [f"{n},p1,10.00,2026-03-01\n" for n in range(10)]
    rows += [f"r{n},p1,{'75.00' if n < amounts else 'ten'},not a day\n" for n in range(10)]
    (home / "inbox/payments.csv").write_text("".join(("payment_id,patient_id,amount,paid_on\n", *rows)))
    chartferry("import")
    found = told_of_batches(home)
    assert found["validated"] == {"amount_received"} | ({"amount_accepted"} if amounts == 5 else set())
    assert found["loaded"] == {"amount_received"} | ({"amount_accepted", "amount_created"} if amounts == 5 else set())


def told_of_batches(home):
    """The amounts that Dagster is told of the home's only batch, by stage."""
    environ = dict(os.environ)
    with closing(open_ledger(home, environ)) as ledger:
        [batch] = ledger.batches()
    [feed] = (each for each in home_catalog(home, environ).feeds if each.name == batch["feed"])
    told = {}
    for stage in ("validated", "loaded"):
        done = tell(home, environ, feed, batch["target"], [batch["batch_id"]], stage).outcome.done
        told[stage] = {name for name in done[batch["batch_id"]] if name in AMOUNTS}
    return told


def test_a_validated_file_of_one_record_tells_no_sum(tmp_path):
    """REPORT-26"""
    one = Validated(tmp_path, records=1, accepted=1, amount_received=4_062, amount_accepted=4_062)
    assert not set(metadata.of_validated("payments.csv", one, 1.0, money=True)) & set(AMOUNTS)
    many = Validated(tmp_path, records=9, accepted=9, amount_received=4_062, amount_accepted=4_062)
    assert metadata.of_validated("payments.csv", many, 1.0, money=True)["amount_received"] == 40.62


@pytest.mark.parametrize(
    ("created", "refused", "nothing", "drawn"),
    [
        (1, 0, 0, []),
        (4, 4, 0, ["2026-02, Received: $80"]),
        (5, 0, 0, ["2026-02, Received: $50", "2026-02, Created: $50"]),
        (6, 1, 0, ["2026-02, Received: $70"]),
        (6, 1, 5, ["2026-02, Received: $70"]),
        (4, 0, 5, []),
        (5, 5, 0, ["2026-02, Received: $100", "2026-02, Created: $50"]),
    ],
)
def test_a_plot_shows_no_sum_of_few_payments(created, refused, nothing, drawn, monkeypatch):
    """REPORT-26: nor what two sums differ by; those of 0.00 or without an amount hide nobody.

    The page, which stays with the tables, shows every sum.
    """
    for other in ("_imports", "_rejects", "_volumes", "_turnaround"):
        monkeypatch.setattr(figures, other, lambda *_: None)
    with duckdb.connect() as db:
        db.execute("CREATE TABLE payment (paid_on DATE, amount DECIMAL(18, 2), fate VARCHAR)")
        for fate, number in (("created", created), ("refused", refused)):
            db.execute(f"INSERT INTO payment SELECT '2026-02-03', 10, '{fate}' FROM range({number})")
        for amount in ("0", "NULL"):
            db.execute(f"INSERT INTO payment SELECT '2026-02-03', {amount}, 'refused' FROM range({nothing})")
        plots, page = (figures.figures_of(db, [], "2026-02", of_few=shown)[2] for shown in (False, True))
    assert plots.chart
    assert page.chart
    assert [bar.says for bar in plots.chart.bars] == drawn
    assert next(bar.says for bar in page.chart.bars) == f"2026-02, Received: ${10 * (created + refused)}"


def test_checks_say_that_amounts_differ_without_a_figure(tmp_path, monkeypatch):
    """REPORT-26"""
    monkeypatch.setattr("pipelines.dagster.checks.counted_in", lambda _: dict.fromkeys(FILES, SUMS))
    found = Validated(Path(), records=1, accepted=1, amount_received=4_062, amount_accepted=4_062)
    loaded = Result("b", 1, "payments", "payments.csv", "finished", {"amount_created": 4_062})
    said = [*every_cent_is_accounted_for(found), *the_ledger_says_the_same(LoadedBatch(loaded, {}, first=True))]
    assert said == [
        "the amount accepted is not that of the files",
        "the amount created is not that in the ledger",
    ]


FILES = ("accepted", "rejects", "skipped", "known")
SUMS = type("Sums", (), {"rows": 0, "lines": 0, "cents": 0})()
