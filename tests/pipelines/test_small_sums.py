"""What Dagster is told of amounts: sums of so many records that they are nobody's."""

from pathlib import Path

import pytest

from pipelines.dagster import metadata
from pipelines.dagster.checks import LoadedBatch, every_cent_is_accounted_for, the_ledger_says_the_same
from pipelines.runs.run import Result
from pipelines.validation.outcome import Validated

AMOUNTS = ("amount_received", "amount_accepted", "amount_created")


def told(**counts):
    """The amounts that Dagster is told of a loaded batch."""
    sums = {"amount_received": 10_000, "amount_accepted": 9_000, "amount_created": 8_000}
    result = Result("b", 1, "payments", "payments.csv", "finished", counts | sums)
    return {name for name in metadata.of_loaded(result, "t", money=True) if name in AMOUNTS}


@pytest.mark.parametrize(
    ("records", "accepted", "created", "shown"),
    [
        (1, 1, 1, set()),
        (4, 4, 4, set()),
        (5, 5, 5, {"amount_received", "amount_accepted", "amount_created"}),
        (100, 99, 99, {"amount_received"}),
        (100, 100, 98, {"amount_received", "amount_accepted"}),
        (100, 95, 90, {"amount_received", "amount_accepted", "amount_created"}),
        (100, 95, 93, {"amount_received", "amount_accepted"}),
        (100, 2, 2, {"amount_received"}),
    ],
)
def test_a_sum_or_a_difference_of_few_records_is_not_told(records, accepted, created, shown):
    """REPORT-26"""
    assert told(records=records, accepted=accepted, created=created) == shown


def test_a_validated_file_of_one_record_tells_no_sum(tmp_path):
    """REPORT-26"""
    one = Validated(tmp_path, records=1, accepted=1, amount_received=4_062, amount_accepted=4_062)
    assert not set(metadata.of_validated("payments.csv", one, 1.0, money=True)) & set(AMOUNTS)
    many = Validated(tmp_path, records=9, accepted=9, amount_received=4_062, amount_accepted=4_062)
    assert metadata.of_validated("payments.csv", many, 1.0, money=True)["amount_received"] == 40.62


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
