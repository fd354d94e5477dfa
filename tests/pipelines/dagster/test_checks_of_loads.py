"""Checks of Dagster after a load: each fails where a row or a cent is lost."""

import pytest

from pipelines.dagster import checks
from pipelines.runs.run import RunResult


def loaded_batch(**counts: int) -> checks.LoadedBatch:
    rows = {"created": (2, 700), "skipped": (1, 300)}
    given = {"records": 4, "accepted": 3, "rejected": 1, "created": 2, "skipped": 1, "amount_created": 700} | counts
    return checks.LoadedBatch(RunResult("b", 1, "payments", "payments.csv", "finished", given), rows, first=True)


@pytest.mark.parametrize(
    ("statement", "counts"),
    [
        ("every_accepted_record_has_an_outcome", {"created": 1}),
        ("every_accepted_record_has_an_outcome", {"rejected": 0}),
        ("the_ledger_says_the_same", {"created": 3}),
        ("the_ledger_says_the_same", {"amount_created": 701}),
        ("no_row_is_in_doubt", {"in_doubt": 1}),
        ("every_record_was_taken", {}),
        ("some_record_was_taken", {"created": 0, "skipped": 0, "refused": 3}),
    ],
)
def test_a_check_fails_when_a_row_or_a_cent_is_lost(statement: str, counts: dict[str, int]) -> None:
    [found] = [each for each in checks.AFTER_LOAD if each.name == statement]
    assert list(found.violations(loaded_batch(**counts)))
    if counts:
        assert not list(found.violations(loaded_batch()))
