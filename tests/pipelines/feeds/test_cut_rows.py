"""Rows whose last text a line break without quotes may have cut: they are rejected, and good rows are not."""

from pathlib import Path

import pytest

from pipelines.feeds.drafting.sample import sample_lines
from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.reading.chunks import CHUNK
from pipelines.feeds.reading.cut_rows import CUT
from pipelines.validation.outcome import ValidationResult
from tests.support import validating
from tests.support.archives import zipped

FEED = """
kind = "tasks"
files = "*.csv"
[columns]
task_id = "id"
requester_id = "by"
status = { constant = "requested" }
description = "TEXT"
"""
HEADER = "id,by,what\n"


def task(number: int, text: str = "Call") -> str:
    return f"t{number},dr-1,{text}\n"


def validated(folder: Path, text: str, more: str = "", column: str = "what") -> ValidationResult:
    return validating.validated(text, folder, "worklist.csv", more + FEED.replace("TEXT", column))


def rejects(found: ValidationResult) -> dict[int, str]:
    return {line: message for line, _, message in validating.rejected(found)}


FEWER = "1 field where the header has 3"


def test_a_row_whose_text_goes_on_below_is_rejected_with_it(tmp_path: Path) -> None:
    """FEED-FILE-02: the chart would have half a text."""
    found = validated(tmp_path, HEADER + task(1) + task(2, "Take blood") + "and send it to the lab\n" + task(3))
    assert rejects(found) == {3: CUT.message, 4: FEWER}
    assert (found.accepted, found.rows) == (2, 4)
    shown = [*sample_lines(load_feed(tmp_path / "feed.toml"), tmp_path / "worklist.csv", 9)]
    assert f"worklist.csv: line 3: rejected: {CUT.message}" in shown


def test_the_rest_of_a_text_may_be_in_the_next_chunk(tmp_path: Path) -> None:
    rows = [*map(task, range(CHUNK)), "and write\n", *map(task, range(CHUNK, CHUNK + 3))]
    assert rejects(validated(tmp_path, HEADER + "".join(rows))) == {CHUNK + 1: CUT.message, CHUNK + 2: FEWER}


@pytest.mark.parametrize(
    ("between", "rest", "below"),
    [
        ("\n", "and send it", task(3)),
        (",,\n\n", "and send it, by post", task(3)),
        ("", "and send it", ""),
        ("\n", "und schicken", ""),
        ("", "and send it\nto the lab", ""),
    ],
)
def test_a_text_that_goes_on_in_small_letters_is_one_below_a_blank_line_and_at_the_end(
    between: str, rest: str, below: str, tmp_path: Path
) -> None:
    """FEED-FILE-02: a note there begins otherwise."""
    found = rejects(validated(tmp_path, f"{HEADER}{task(1)}{task(2, 'Take blood')}{between}{rest}\n{below}"))
    assert found[3] == CUT.message
    assert len(found) == 2 + rest.count("\n")


def test_the_last_row_of_a_chunk_may_go_on_below_a_blank_line(tmp_path: Path) -> None:
    rows = [*map(task, range(CHUNK)), "\nand write\n", *map(task, range(CHUNK, CHUNK + 3))]
    assert rejects(validated(tmp_path, HEADER + "".join(rows))) == {CHUNK + 1: CUT.message, CHUNK + 3: FEWER}


JOINED = """
kind = "tasks"
files = ["items*.csv", "*.zip"]
one_row_per = "comment"
[join.comments]
files = ["comments*.csv"]
on = { "id" = "item_id" }
one_row_per = "comments"
[columns]
task_id = "id"
description = "title"
status = { constant = "requested" }
requester_id = "by"
comment = "comments.body"
comment_author_id = "comments.author"
"""


def test_each_of_two_joined_files_may_have_cut_rows(tmp_path: Path) -> None:
    items = "id,by,title\nA,dr-1,Call\nB,dr-1,Take blood\nand send it\nC,dr-1,Fax\n"
    comments = "item_id,author,body\nA,dr-1,yes\nA,dr-2,one part\nwent on\nB,dr-1,no\nC,dr-1,so\n"
    packed = zipped({"items.csv": items, "comments.csv": comments})
    found = validating.validated(packed, tmp_path, "tracker.zip", JOINED)
    assert validating.keys(found) == ["C"]
    assert sum(CUT.message in said for said in rejects(found).values()) == 2


@pytest.mark.parametrize(
    ("above", "line", "below"),
    [
        (task(2), "2 rows in all", ""),
        (task(2), "Page 1 of 3", task(3)),
        (task(2), "Total: 2", task(3)),
        (task(2), "t9,dr-1", task(3)),
        (task(2, ""), "and send", task(3)),
        (task(2, "4711"), "and send", task(3)),
        (task(2) + "\n", "Ward North", task(3)),
        (task(2), "Ward North", ""),
        (task(2), "exported on 2026-03-01", ""),
        (task(2), "www.clinic.example", ""),
        (task(2), "user: anna", ""),
        (task(2), "confidential", ""),
        (task(2) + HEADER, "and send it", ""),
        (task(2, "4711") + "\n", "and send it", ""),
    ],
)
def test_no_row_is_rejected_for_another_line_below_it(tmp_path: Path, above: str, line: str, below: str) -> None:
    """At the end, a foot, a total, a row without all its fields; below no text, or a blank line."""
    found = rejects(validated(tmp_path, f"{HEADER}{task(1)}{above}{line}\n{below}"))
    assert CUT.message not in found.values()
    assert len(found) == 1 + (task(2, "") in above)


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ('skip.id = "Ward North"\n', "what"),
        ('take.id = { not = "t2" }\n', "what"),
        ("", "id"),
    ],
)
def test_rows_that_the_feed_leaves_out_prove_nothing_about_cut_rows(tmp_path: Path, more: str, column: str) -> None:
    """A line that is no record, a row that it does not take, a text that it takes from elsewhere."""
    found = validated(tmp_path, f"{HEADER}{task(1)}{task(2)}Ward North\n{task(3)}", more, column)
    assert CUT.message not in rejects(found).values()
