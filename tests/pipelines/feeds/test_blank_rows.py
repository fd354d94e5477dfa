"""Rows that say nothing: they are counted as lines not taken, and nobody has to correct them."""

from pathlib import Path

import pytest

from tests.pipelines.test_validate import HEADER, validated


@pytest.mark.parametrize("blank", ["", "   ", ",,,,", " , ,\t,,", ",,,,,,,", '"","","","",""', "\u00a0", "\x1a", "\f"])
def test_a_row_that_says_nothing_is_a_blank_line(blank: str, tmp_path: Path) -> None:
    """FEED-FILE-02: as spreadsheets write empty rows, and as old systems end a file."""
    found = validated(f"{blank}\n{HEADER}{blank}\nk1,p1,1.00,2026-01-01,\n{blank}\n{blank}", tmp_path)
    last = 1 if blank else 0
    assert (found.lines, found.header, found.not_taken) == (5 + last, 1, 3 + last)
    assert (found.rows, found.accepted, found.rejected) == (1, 1, 0)


def test_a_file_of_rows_that_say_nothing_is_empty(tmp_path: Path) -> None:
    """FEED-FILE-02: with a header it has no records."""
    found = validated(HEADER + ",,,,\n" * 3, tmp_path)
    assert (found.lines, found.not_taken, found.records) == (4, 3, 0)


def test_an_empty_row_between_those_of_a_trailer_is_no_row(tmp_path: Path) -> None:
    """FEED-FILE-02: neither counted by the trailer nor taken for what follows it."""
    toml = """kind = "payments"
files = ["*"]
[trailer]
when = { payment_id = "SUM" }
rows = "patient_id"
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""
    content = f"{HEADER}k1,p1,1.00,2026-01-01,\n,,,,\nk2,p1,1.00,2026-01-01,\nSUM,2,,,\n,,,,\n,,,,\n"
    found = validated(content, tmp_path, toml=toml)
    assert (found.stop, found.accepted, found.not_taken) == (None, 2, 4)
