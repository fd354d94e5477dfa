"""Rows that repeat the header are no records; rows whose quotes may have cut a text are rejected."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import load_feed
from pipelines.home.batch import Received
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.stage import validate
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


FEED = """
kind = "payments"
files = ["till*"]
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""
TITLE = "line 4 is a title, and the header comes again below it"


@pytest.mark.parametrize("title", ["Refunds\n", "Refunds,,,,\n", "Refunds\n\n"], ids=["alone", "padded", "spaced"])
def test_rows_of_a_second_table_are_rejected(title: str, tmp_path: Path) -> None:
    """LEDGER-25: a title says that they may be other records."""
    below = title + PAYMENTS + payment("b") + PAYMENTS + payment("c")
    found = validated(tmp_path, PAYMENTS + payment("a") + "\n" + below)
    assert accepted(found) == [(2, "a")]
    told = sorted(rejected(found))
    assert told[0][0] == 4
    assert [message.startswith(TITLE) for _, _, message in told[1:]] == [True, True]


@pytest.mark.parametrize("foot", ["Page 1 of 2\n", "Total: 1\n", "\n"])
def test_rows_behind_the_foot_of_a_page_are_of_the_same_table(foot: str, tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated(tmp_path, PAYMENTS + payment("a") + foot + PAYMENTS + payment("b"))
    assert [key for _, key in accepted(found)] == ["a", "b"]


def test_a_title_that_the_feed_leaves_out_begins_no_other_table(tmp_path: Path) -> None:
    """LEDGER-25: by the key that the reason names."""
    (tmp_path / "till.toml").write_text(FEED + '[skip]\npayment_id = "More"\n')
    (tmp_path / "till.csv").write_text(PAYMENTS + payment("a") + "More\n" + PAYMENTS + payment("b"))
    received = Received("b", "0" * 64, tmp_path / "till.csv", "till.csv", 0, datetime(2024, 6, 1, tzinfo=UTC))
    found = validate(received, load_feed(tmp_path / "till.toml"), Snapshot(), Site(), tmp_path / "run")
    assert [key for _, key in accepted(found)] == ["a", "b"]
