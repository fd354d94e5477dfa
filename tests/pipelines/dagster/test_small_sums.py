"""Dagster shows sums of amounts only if enough records are in them to reveal none."""

import os
from contextlib import closing
from pathlib import Path

import pytest

import pipelines
from pipelines.dagster import metadata
from pipelines.dagster.checks import LoadedBatch, every_cent_is_accounted_for, the_ledger_says_the_same
from pipelines.dagster.command_line_runs import tell
from pipelines.feeds.files.catalog import home_catalog
from pipelines.runs.run import RunResult
from pipelines.session.ledger import open_ledger
from pipelines.validation.outcome import ValidationResult

HEADER = "payment_id,patient_id,amount,paid_on\n"
AMOUNTS = ("amount_received", "amount_accepted", "amount_created")


BOTH = {"amount_received", "amount_accepted"}


def told(amounts, accepted, created):
    """Return the amounts that Dagster shows of a loaded batch of 100 records of 1.00. amounts: 0 if not counted."""
    sums = {"amount_received": amounts or 100, "amount_accepted": accepted, "amount_created": created}
    counts = {"records": 100, "accepted": accepted, "created": created} | {name: n * 100 for name, n in sums.items()}
    result = RunResult("b", 1, "payments", "payments.csv", "finished", counts, amounts=amounts)
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
def test_a_sum_or_difference_of_few_amounts_is_not_shown(amounts, accepted, created, shown):
    """REPORT-26: rejected records without an amount do not count towards the number."""
    assert told(amounts, accepted, created) == shown


@pytest.mark.alike
@pytest.mark.parametrize("amounts", [1, 5])
def test_rejects_without_an_amount_do_not_count_towards_the_number_that_permits_a_sum(amounts, home, chartferry):
    """REPORT-26: in what Dagster shows of imports by the command line."""
    rows = [f"{n},p1,10.00,2026-03-01\n" for n in range(10)]
    rows += [f"r{n},p1,{'75.00' if n < amounts else 'ten'},not a day\n" for n in range(10)]
    (home / "inbox/payments.csv").write_text("".join((HEADER, *rows)))
    chartferry("import")
    found = told_of_batches(home)
    assert found["validated"] == {"amount_received"} | ({"amount_accepted"} if amounts == 5 else set())
    assert found["loaded"] == {"amount_received"} | ({"amount_accepted", "amount_created"} if amounts == 5 else set())


@pytest.mark.alike
@pytest.mark.parametrize(
    ("others", "line", "times", "validated", "loaded"),
    [
        (0, "k,p1,123.45,2026-03-01\n", 6, set(), set()),
        (
            9,
            "k,p1,123.45,2026-03-01\n",
            6,
            {"amount_received", "amount_accepted"},
            {"amount_received", "amount_accepted"},
        ),
        (9, "k,p1,123.45,not a day\n", 6, {"amount_received"}, {"amount_received"}),
    ],
)
def test_a_record_that_a_file_has_several_times_is_one_amount(others, line, times, validated, loaded, home, chartferry):
    """REPORT-26"""
    rows = [f"{n},p1,10.00,2026-03-01\n" for n in range(others)]
    (home / "inbox/payments.csv").write_text("".join((HEADER, *rows, line * times)))
    chartferry("import")
    assert told_of_batches(home) == {"validated": validated, "loaded": loaded}


def test_no_sums_are_shown_again_after_a_retry_of_a_few_rejects(home, chartferry):
    """REPORT-26: they would differ from those of the first run by the few that were sent."""
    rows = [f"{n},p1,10.00,2026-03-01\n" for n in range(9)]
    (home / "inbox/payments.csv").write_text("".join((HEADER, *rows, "k,p1,123.45,01.03.2026\n")))
    chartferry("import")
    assert told_of_batches(home)["loaded"] == {"amount_received"}
    feed = (Path(pipelines.__file__).parent / "feeds/builtin/payments.toml").read_text()
    (home / "feeds/payments.toml").write_text(feed.replace("[columns]", 'dates = ["%d.%m.%Y"]\n[columns]', 1))
    chartferry("rejects", "retry")
    assert told_of_batches(home) == {"validated": set(), "loaded": set()}


def told_of_batches(home):
    """Return the amounts that Dagster shows of the home's only batch, by stage."""
    environ = dict(os.environ)
    with closing(open_ledger(home, environ)) as ledger:
        [batch] = ledger.batches()
    [feed] = (each for each in home_catalog(home, environ).feeds if each.name == batch["feed"])
    told = {}
    for stage in ("validated", "loaded"):
        done = tell(home, environ, feed, batch["target"], [batch["batch_id"]], stage).done
        told[stage] = {name for name in done[batch["batch_id"]] if name in AMOUNTS}
    return told


def test_the_metadata_of_a_file_with_one_record_has_no_sum(tmp_path):
    """REPORT-26"""
    one = ValidationResult(tmp_path, records=1, accepted=1, amount_received=4_062, amount_accepted=4_062)
    assert not set(metadata.of_validated("payments.csv", one, 1.0, money=True)) & set(AMOUNTS)
    many = ValidationResult(tmp_path, records=9, accepted=9, amount_received=4_062, amount_accepted=4_062)
    assert metadata.of_validated("payments.csv", many, 1.0, money=True)["amount_received"] == 40.62


def test_checks_say_that_amounts_differ_without_a_figure(tmp_path, monkeypatch):
    """REPORT-26"""
    monkeypatch.setattr("pipelines.dagster.checks.counted_in", lambda _: dict.fromkeys(FILES, SUMS))
    found = ValidationResult(Path(), records=1, accepted=1, amount_received=4_062, amount_accepted=4_062)
    loaded = RunResult("b", 1, "payments", "payments.csv", "finished", {"amount_created": 4_062})
    said = [*every_cent_is_accounted_for(found), *the_ledger_says_the_same(LoadedBatch(loaded, {}, first=True))]
    assert said == [
        "the amount accepted is not that of the files",
        "the amount created is not that in the ledger",
    ]


FILES = ("accepted", "rejects", "skipped", "known")
SUMS = type("Sums", (), {"rows": 0, "lines": 0, "cents": 0})()
