"""Last lines without their end: a warning, and a reject where an amount may be cut off."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.sifting import may_be_cut
from tests.support import validating

FEED = """
kind = "payments"
files = "*.csv"
decimal = "DECIMAL"
delimiter = ";"
[columns]
payment_id = "id"
patient_id = "patient"
paid_on = "day"
amount = "paid"
"""
TAKE = '[take]\nid = { not = "Sum" }\n'
TRAILER = '[trailer]\nwhen = { id = "Sum" }\namount = "paid"\n'
HEADER = "id;patient;day;paid\n"


def validated(folder: Path, text: str, more: str = "", control: str = "", decimal: str = ".") -> ValidationResult:
    if control:
        (folder / "cash.csv.control.json").write_text(control)
    return validating.validated(text, folder, "cash.csv", FEED.replace("DECIMAL", decimal) + more)


def rows(*amounts: str, end: str = "\n") -> str:
    return end.join([HEADER.strip(), *(f"k{place};p1;2024-01-01;{paid}" for place, paid in enumerate(amounts))])


@pytest.mark.parametrize("last", ["40.", "40.6", "40", "", "$"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_amount_that_may_be_cut_off_is_rejected_with_its_line(last: str, end: str, tmp_path: Path) -> None:
    """LEDGER-24: 40.62 is not taken for 40.00."""
    found = validated(tmp_path, rows("10.00", "7.25", last, end=end))
    assert (found.accepted, found.rejected, found.rows, found.lines) == (2, 1, 3, 4)
    (reject,) = validating.rows(found, "rejects")
    assert (reject["line"], reject["reasons"][0]["rule_id"]) == (4, "LEDGER-24")
    assert found.warnings == {"LEDGER-24": 1}
    assert pq.read_table(found.folder / "warnings.parquet")["line"].to_pylist() == [4]


def test_a_whole_amount_is_taken_and_the_line_warned_of(tmp_path: Path) -> None:
    """LEDGER-24"""
    found = validated(tmp_path, rows("10.00", "7.25", "40.62"))
    assert (found.accepted, found.rejected, found.warnings) == (3, 0, {"LEDGER-24": 1})


def test_a_line_with_its_end_is_taken_as_it_is(tmp_path: Path) -> None:
    """LEDGER-24"""
    found = validated(tmp_path, rows("10.00", "7.25", "40") + "\n")
    assert (found.accepted, found.rejected, found.warnings) == (3, 0, {})


def test_a_decimal_comma_is_looked_for_where_the_feed_has_one(tmp_path: Path) -> None:
    """LEDGER-24"""
    assert validated(tmp_path, rows("10,00", "40,6"), decimal=",").rejected == 1


@pytest.mark.parametrize(
    ("control", "rejected", "stopped"),
    [('{"amount": "17.25"}', 1, True), ('{"amount": "57.25", "rows": 3}', 0, False), ('{"rows": 3}', 1, False)],
)
def test_a_total_of_the_amounts_proves_the_last_one(control: str, rejected: int, stopped: bool, tmp_path: Path) -> None:
    """LEDGER-24: a number of rows alone does not; another amount stops the whole file."""
    found = validated(tmp_path, rows("10.00", "7.25", "40"), control=control)
    assert bool(found.stop) == stopped
    assert stopped or found.rejected == rejected


def test_a_row_that_is_not_taken_and_a_trailer_are_no_rejects(tmp_path: Path) -> None:
    """LEDGER-24"""
    assert validated(tmp_path, rows("10.00") + "\nSum;;;10", TAKE).rejected == 0
    found = validated(tmp_path, rows("10.00") + "\nSum;;;10", TRAILER)
    assert (found.rejected, found.stop) == (0, None)


@pytest.mark.long
def test_a_row_behind_thousands_of_others_is_compared_with_those_before(tmp_path: Path) -> None:
    """LEDGER-24: also where it is the first of its chunk."""
    for number in (2_000, 2_001, 4_000):
        assert validated(tmp_path, rows(*["1.00"] * number, "40.")).rejected == 1


@pytest.mark.parametrize(
    ("cell", "others", "cut"),
    [
        ("40.62", ["1.00", "40.62-"], True),
        ("4", ["100", "2.5"], False),
        ("2.5", ["1.25", "n/a", "2.50"], True),
        ("c1", ["c12", "c13"], False),
        ("", ["1.00", ""], False),
        ("40.", [], True),
        ("40", [], False),
    ],
)
def test_a_cell_is_compared_with_its_column(cell: str, others: list[str], cut: bool) -> None:
    """LEDGER-24"""
    assert may_be_cut(cell, others, NumberFormat()) == cut
