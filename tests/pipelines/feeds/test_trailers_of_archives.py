"""Trailers of an archive of several files: one that was cut off stops all of them."""

from pathlib import Path

import pytest

from tests.support.archives import zipped
from tests.support.validating import validated

FEED = """
kind = "payments"
files = ["till*"]
[trailer]
when = {{ id = "TOTAL" }}
{totals}
[columns]
payment_id = "id"
patient_id = "who"
amount = "sum"
paid_on = "on"
"""
ROWS, AMOUNT = 'rows = "who"', 'amount = "sum"'
HEADER = "id,who,sum,on\n"


def archive(*files: str) -> bytes:
    """The files as till-1.csv, till-2.csv, ..."""
    return zipped({f"till-{number}.csv": HEADER + rows for number, rows in enumerate(files, 1)})


def row(key: str) -> str:
    return f"{key},p1,2.50,2026-03-01\n"


def total(rows: int) -> str:
    return f"TOTAL,{rows},{rows * 2.5:.2f},\n"


WHOLE = row("a") + row("b") + total(2), row("c") + total(1)
CUT_OFF = "till-1.csv has no trailer row, but its feed says that it ends with one; it may be cut off"


@pytest.mark.parametrize("totals", ["", ROWS, AMOUNT, f"{ROWS}\n{AMOUNT}"])
def test_each_file_is_compared_with_its_own_trailer(totals: str, tmp_path: Path) -> None:
    """FEED-FILE-08: an earlier version held the last trailer against the rows of all files."""
    found = validated(archive(*WHOLE), tmp_path, "till.zip", FEED.format(totals=totals))
    assert (found.control_mismatch, found.accepted, found.rows) == (None, 3, 3)


@pytest.mark.parametrize("totals", ["", ROWS, AMOUNT])
def test_a_file_without_its_trailer_stops_all(totals: str, tmp_path: Path) -> None:
    """FEED-FILE-08: the rows that it lost were in none of the others."""
    files = row("a"), row("c") + total(1), row("d") + total(1)
    found = validated(archive(*files), tmp_path, "till.zip", FEED.format(totals=totals))
    assert found.control_mismatch == CUT_OFF
    (folder := tmp_path / "last").mkdir()
    found = validated(archive(*files[1:], row("e")), folder, "till.zip", FEED.format(totals=totals))
    assert found.control_mismatch == CUT_OFF.replace("till-1", "till-3")


def test_a_trailer_without_totals_at_the_end_does_not_prove_the_other_files_of_an_archive(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    found = validated(archive(row("a"), row("c") + total(1)), tmp_path, "till.zip", FEED.format(totals=""))
    assert found.control_mismatch == CUT_OFF


@pytest.mark.parametrize(
    ("rows", "totals", "said"),
    [
        (3, ROWS, None),
        (3, AMOUNT, None),
        (4, ROWS, "the trailer on till-2.csv, line 3 says 4 rows, the file has 3"),
        (4, AMOUNT, "the trailer on till-2.csv, line 3 says a different amount than the rows of the file have"),
    ],
)
def test_the_last_file_alone_may_say_the_totals_of_all(
    rows: int, totals: str, said: str | None, tmp_path: Path
) -> None:
    """FEED-FILE-08"""
    files = archive(row("a") + row("b"), row("c") + total(rows))
    assert validated(files, tmp_path, "till.zip", FEED.format(totals=totals)).control_mismatch == said


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (row("a") + total(2), "the trailer on till-1.csv, line 3 says 2 rows, the file has 1"),
        (
            total(0) + row("a"),
            "the trailer on till-1.csv, line 2 is followed by further rows; check that it is one export",
        ),
    ],
)
def test_a_file_that_differs_from_its_trailer_is_named_with_its_own_line(first: str, said: str, tmp_path: Path) -> None:
    """FEED-FILE-08"""
    found = validated(archive(first, WHOLE[1]), tmp_path, "till.zip", FEED.format(totals=ROWS))
    assert found.control_mismatch == said


def test_amounts_of_all_files_are_compared_with_those_of_all_trailers(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    first = row("a") + "TOTAL,1,2.49,\n"
    found = validated(archive(first, WHOLE[1]), tmp_path, "till.zip", FEED.format(totals=AMOUNT))
    assert found.control_mismatch == "the trailers say a different amount than the rows of the file have"
