"""Rejects that several rows of a correction answer: each of these rows is loaded, or waits for a person."""

import csv

import pytest

from tests.pipelines.corrections.test_ended import ROWS, amounts
from tests.support.giving_back import HEADER

pytestmark = pytest.mark.usefixtures("additions")


@pytest.fixture
def split(practice):
    """k2 was put in as two payments, both wrong; gives the header and the rows, as they are exported since."""
    practice.take(HEADER + ROWS["k1"] + ROWS["k2"].replace("2.00", "two"))
    (export,) = practice.export().values()
    head, row = export.splitlines(keepends=True)
    practice.take(head + b"".join(row.replace(b",k2,", key) for key in (b",k2-b,", b",k2-c,")), "split.csv")
    (export,) = practice.export().values()
    return export.splitlines(keepends=True)


@pytest.mark.parametrize("key", [b",k2-b,", b",k2-d,"])
def test_a_reject_of_two_rows_stays_open_when_one_of_them_is_loaded(practice, split, key):
    """LEDGER-07: the other was in no file of rejects any more, and the import said that all was loaded."""
    head, first, _ = split
    assert practice.take(head + first.replace(b",k2-b,", key).replace(b"two", b"6.00"), "first.csv")[0] == 0
    assert practice.rejects() == {"k2": ("open", 2)}
    (left,) = practice.export().values()
    assert b",k2-c,p2,two," in left
    assert (b",k2-b,p2,two," in left) == (key == b",k2-d,")
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.rejects() == {"k2": ("open", 3)}


def test_a_reject_of_two_rows_is_closed_by_two(practice, split):
    """CLI-CMD-05: whatever keys they have."""
    head, first, second = split
    rows = first.replace(b"two", b"6.00") + second.replace(b",k2-c,", b",k2-d,").replace(b"two", b"4.00")
    assert practice.take(head + rows, "both.csv")[0] == 0
    assert amounts(practice) == [1, 4, 6]
    assert practice.rejects() == {"k2": ("closed", 2)}


def test_a_row_that_was_loaded_under_an_id_of_its_own_ends_the_reject_that_it_had(practice, split):
    """LEDGER-07: it was exported as open although the chart had it."""
    head, first, second = split
    practice.take(head + first.replace(b"two", b"6.00"), "first.csv")
    practice.take(head + second.replace(b"two", b"4.00"), "second.csv")
    (own,) = (each for each in practice.export().values() if b"LEDGER-07" in each)
    assert practice.take(own, "meant.csv")[0] == 0
    assert amounts(practice) == [1, 4, 6]
    assert {state for state, _ in practice.rejects().values()} == {"closed"}


def test_each_of_two_rows_that_answer_a_reject_has_only_its_own_reasons(practice, split):
    """CLI-CMD-04: each had the reasons of both."""
    head, first, second = split
    practice.take(head + first + second.replace(b"two", b"4.00").replace(b",p2,", b",,"), "both.csv")
    (export,) = practice.export().values()
    _, *rows = csv.reader(export.decode().splitlines())
    assert [row[1].partition(":")[0] for row in rows] == ["FEED-FILE-09", "FEED-PAY-02"]
    assert not any(";" in row[1] for row in rows)
