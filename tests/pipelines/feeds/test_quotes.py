"""Quotes that are never closed, or too late: no row is taken in unseen, and each line is accounted for."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.feeds.reading import csv_file
from pipelines.home.batch import UnreadableFile
from tests.support.quotes import MARK, TASKS, payment
from tests.support.validating import PAYMENTS, accepted, rejected, validated

ANSWERS = "response_id,patient_id,questionnaire,question,answer_code,answer_text\n"


@pytest.mark.parametrize(
    "rest",
    [
        [payment("b"), payment("c")],
        [payment("b"), payment("c", '"1.00"')],
        [payment("b", '"1.00"'), payment("c")],
        pytest.param([payment(f"k{number:0100}") for number in range(18_000)], marks=pytest.mark.long),
    ],
    ids=["to the end", "to the next quote", "to a quoted amount", "over more than 2 MiB"],
)
def test_a_quote_that_is_not_closed_rejects_its_own_line_alone(rest: list[str], tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-09."""
    found = validated(PAYMENTS + payment("a", '"1.00') + "".join(rest), tmp_path)
    assert [key for _, key in accepted(found)] == [row.partition(",")[0] for row in rest]
    ((line, lines, message),) = rejected(found)
    assert (line, lines) == (2, 1)
    assert message.startswith("wrong quoting: a quote opens in this row and is not closed")
    assert found.lines == 2 + len(rest)


def test_each_of_several_rows_with_an_unclosed_quote_is_rejected_alone(tmp_path: Path) -> None:
    """FEED-FILE-02."""
    found = validated(PAYMENTS + payment("a", '"1') + payment("b") + payment("c", '"1') + payment("d"), tmp_path)
    assert accepted(found) == [(3, "b"), (5, "d")]
    assert [line for line, _, _ in rejected(found)] == [2, 4]


def test_a_text_of_several_lines_that_is_wrongly_quoted_stays_one_reject_that_names_them(tmp_path: Path) -> None:
    """FEED-FILE-02."""
    row = '1,"call ""him""\nand "her" too\nsoon",requested,d1,\n'
    found = validated(TASKS + row + "2,mend,requested,d1,\n", tmp_path, "tasks.csv")
    assert accepted(found) == [(5, "2")]
    (first, second) = rejected(found)
    assert first[:2] == (2, 2)
    assert first[2].startswith("lines 2 to 3 were read as one row: wrong quoting: double each quote inside a field")
    assert second == (4, 1, "4 fields where the header has 5")


def test_a_row_that_would_be_whole_with_others_inside_is_rejected_and_names_its_lines(tmp_path: Path) -> None:
    """FEED-FILE-02: a description is not made of other tasks."""
    taken = '1,"call,requested,d1,\n2,mend,requested,d1,\n3,write",requested,d1,\n'
    text = '4,"line, one\nline two, and, three",requested,d1,\n'
    found = validated(TASKS + taken + text, tmp_path, "tasks.csv")
    assert accepted(found) == [(5, "4")]
    ((line, lines, message),) = rejected(found)
    assert (line, lines) == (2, 3)
    assert message.startswith("lines 2 to 4 were read as one row: a quote opens on the first line")


def test_put_in_again_as_it_is_such_a_row_is_taken(tmp_path: Path) -> None:
    """FEED-FILE-02, CLI-CMD-05."""
    row = f'{MARK},why,1,"list:\n2,mend,requested,d1,\n",requested,d1,\n'
    found = validated("_reject_id,_reasons," + TASKS + row, tmp_path, "tasks.csv")
    assert accepted(found) == [(2, "1")]


def test_no_response_goes_on_without_the_row_that_a_quote_breaks(tmp_path: Path) -> None:
    """FEED-ANS-01, FEED-FILE-02."""
    rows = 'r1,p1,q,a,,fine\nr1,p1,q,b,,"not\nr2,p1,q,a,,fine\n'
    found = validated(ANSWERS + rows, tmp_path, "answers.csv")
    assert [(line, lines) for line, lines, _ in rejected(found)] == [(2, 2), (4, 1)]
    keys = pq.read_table(found.folder / "rejects.parquet")["key"].to_pylist()
    assert keys == ["r1", "r2"]


def test_unclosed_quotes_in_many_rows_refuse_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FEED-FILE-02: reading lines again after a quote has a bound."""
    monkeypatch.setattr(csv_file, "MOST_READ_AGAIN", 1_000)
    text = PAYMENTS + (payment("k", '"1.00') + payment("l") + payment("m", '"1.00"')) * 100
    with pytest.raises(
        UnreadableFile, match=r"^payments\.csv: a quote \(\"\) opened in the row of line \d+ is never closed"
    ):
        validated(text, tmp_path)
