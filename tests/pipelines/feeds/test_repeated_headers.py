"""Rows that repeat the header are no records; rows whose quotes may have cut a text are rejected."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipelines.feeds.test_quotes import PAYMENTS, TASKS, accepted, payment, rejected, validated


@pytest.mark.parametrize("again", [PAYMENTS, "\ufeff" + PAYMENTS], ids=["as it is", "with a byte order mark"])
def test_a_row_that_repeats_the_header_is_counted_and_named(again: str, tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated(tmp_path, PAYMENTS + payment("a") + again + payment("b") + again)
    assert accepted(found) == [(2, "a"), (4, "b")]
    assert (found.rows, found.rejected, found.not_taken, found.lines) == (2, 0, 2, 5)
    assert found.warnings == {"LEDGER-25": 2}
    assert pq.read_table(found.folder / "warnings.parquet")["line"].to_pylist() == [3, 5]


def test_a_header_of_tasks_is_no_task(tmp_path: Path) -> None:
    """LEDGER-25: nothing else would refuse its texts."""
    found = validated(tmp_path, TASKS + "1,call,requested,d1,\n" + TASKS, "tasks.csv")
    assert (found.accepted, found.rejected, found.not_taken) == (1, 0, 1)


@pytest.mark.parametrize(
    "row", ['1,call "Ann, now",requested,d1\n', '1, "call, now",requested,d1\n', '1,ab"c,requested,d1,d"e\n']
)
def test_a_quoted_text_that_was_cut_into_fields_rejects_its_row(row: str, tmp_path: Path) -> None:
    """FEED-FILE-02: the number of fields comes out right, their contents do not."""
    found = validated(tmp_path, TASKS + row, "tasks.csv")
    ((line, _, message),) = rejected(found)
    assert line == 2
    assert message.startswith("wrong quoting: quotes inside two fields")


@pytest.mark.parametrize(
    "row",
    ['1,a 5" pipe,requested,d1,\n', '1,"a 5"" pipe",requested,d1,"3"" nail"\n', '1,call "Ann" now,requested,d1,\n'],
)
def test_a_quote_that_cuts_nothing_is_text(row: str, tmp_path: Path) -> None:
    """FEED-FILE-02"""
    assert validated(tmp_path, TASKS + row, "tasks.csv").accepted == 1
