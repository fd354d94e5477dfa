"""Rows at the end of a file that look like the total of those before them."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.validation.outcome import ValidationResult
from tests.support.validating import PAYMENTS as HEADER
from tests.support.validating import validated

ROWS = "a,p1,10.00,2024-01-01,\nb,p2,7.25,2024-01-02,\nc,p1,5.00,2023-12-01,\n"
TOTAL = "Total,,22.25,,\n"


def totals(found: ValidationResult) -> list[int]:
    """The lines warned of as a total."""
    if not found.warnings:
        return []
    warnings = pq.read_table(found.folder / "warnings.parquet").to_pylist()
    assert found.warnings == {"LOOKS-LIKE-TOTAL": len(warnings)}
    return [warning["line"] for warning in warnings]


def test_a_rejected_row_with_the_sum_of_those_before_it_is_named(tmp_path: Path) -> None:
    found = validated(HEADER + ROWS + TOTAL, tmp_path)
    assert (found.accepted, found.rejected, found.amount_received, totals(found)) == (3, 1, 4450, [5])
    [warning] = pq.read_table(found.folder / "warnings.parquet").to_pylist()
    assert (warning["line"], warning["rule_id"]) == (5, "LOOKS-LIKE-TOTAL")
    assert "22.25" not in warning["message"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Total,,0,,\n", []),
        ("a,p1,10.00,2024-01-01,\nTotal,,10.00,,\n", []),
        (ROWS + "Total,,22.26,,\n", []),
        (ROWS + "d,p1,22.25,2024-01-04,\n", []),
        (ROWS + TOTAL + "d,p1,1.00,2024-01-04,\n", []),
        (ROWS + TOTAL + "Printed on,,,,\n", [5]),
        (ROWS + "d,,2.75,2024-01-01,\nTotal,,25.00,,\n", [6]),
        (ROWS + "a,p1,10.00,2024-01-01,\nTotal,,32.25,,\n", [6]),
    ],
    ids=[
        "nothing",
        "one row",
        "another sum",
        "a payment",
        "payments below",
        "more below",
        "with a reject",
        "with a repeat",
    ],
)
def test_a_row_looks_like_a_total_only_if_it_is_the_sum_of_two_rows_or_more(
    text: str, named: list[int], tmp_path: Path
) -> None:
    assert totals(validated(HEADER + text, tmp_path)) == named


def test_a_control_amount_that_differs_by_a_total_row_names_that_row(tmp_path: Path) -> None:
    """LEDGER-14"""
    (tmp_path / "payments.csv.control.json").write_text('{"amount": "22.25"}')
    found = validated(HEADER + ROWS + TOTAL, tmp_path)
    assert found.control_mismatch is not None
    assert "the rows of the file have; line 5: a rejected row looks like a total" in found.control_mismatch


@pytest.mark.parametrize(("last", "named"), [("32.25", [8]), ("32.26", [])])
def test_a_payment_of_the_sum_of_many_others_is_taken_and_named(last: str, named: list[int], tmp_path: Path) -> None:
    """A total may have cells where payments have theirs."""
    rows = ROWS + "d,p1,4.00,2024-01-04,\ne,p1,5.00,2024-01-04,\nf,p2,1.00,2024-01-05,\n"
    found = validated(HEADER + rows + f"6,all,{last},2024-01-05,\n", tmp_path)
    assert (found.accepted, totals(found)) == (7, named)


def test_a_run_over_some_records_names_no_total(tmp_path: Path) -> None:
    assert totals(validated(HEADER + ROWS + TOTAL, tmp_path, only={5: []})) == []
