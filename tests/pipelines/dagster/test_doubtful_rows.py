"""Rows that may have been misread although their records are at the target; and a key that too many rows share."""

import csv
import io
import sqlite3
from contextlib import closing

import pytest

from pipelines.dagster.checks import counted_in
from tests.support.commands import totals_close
from tests.support.exports import ANSWERS, QUESTIONS, TASKS, feed_file

TORN = 'k1,p1,a "cut,by" a comma,requested,a\n'
SWALLOWED = 'r1,p1,q1,1,"fine\nr9,p1,q1,1,text of a row\nend"\n'
GOOD = "r2,p1,q1,1,well\n"


@pytest.fixture
def fed(home, target):
    """A home with feeds of these columns."""
    target.stored["q1"] = QUESTIONS
    for name, kind, header in (("call", "tasks", TASKS), ("form", "answers", ANSWERS)):
        feed_file(home, name, f'kind = "{kind}"\nfiles = ["{name}*"]\n', header)
    return home


def rejects(home):
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        return ledger.execute("SELECT state FROM reject ORDER BY first_seen_at, line").fetchall()


def put_in_again(home, chartferry, tmp_path):
    """The rejects as they are: somebody has looked at them."""
    out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
    chartferry("rejects", "export", "--out", out)
    for path in out.iterdir():
        (home / "inbox" / f"again-{path.name}").write_bytes(path.read_bytes())


def test_a_doubtful_row_whose_record_is_there_is_unchanged_in_later_exports(fed, asked, chartferry, tmp_path, target):
    """LEDGER-03"""
    (fed / "inbox/form-1.csv").write_text(ANSWERS + SWALLOWED + GOOD)
    first = asked("import")
    assert (first["totals"]["rejected"], first["totals"]["created"]) == (1, 1)
    put_in_again(fed, chartferry, tmp_path)
    assert asked("import")["totals"]["created"] == 1
    (fed / "inbox/form-2.csv").write_text(ANSWERS + SWALLOWED + GOOD + "r3,p1,q1,1,new\n")
    tried = asked("import", "--dry-run")
    assert (tried["totals"]["rejected"], tried["totals"]["unchanged"]) == (0, 2)
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["unchanged"], found["totals"]["created"]) == (0, 2, 1)
    assert rejects(fed) == [("closed",)]
    folder = next((fed / "batches").glob(f"{found['batches'][0]['batch_id']}/run-*"))
    files = {name: each.rows for name, each in counted_in(folder).items()}
    assert files == {"accepted": 2, "rejects": 1, "skipped": 0, "known": 1}
    assert asked("verify")["counts"] == {}
    (fed / "inbox/form-3.csv").write_text(ANSWERS + SWALLOWED.replace("fine", "bad"))
    assert asked("import")["totals"]["rejected"] == 1
    assert rejects(fed) == [("closed",), ("open",)]


@pytest.mark.long
def test_a_doubtful_row_whose_record_was_taken_back_is_rejected(fed, asked, chartferry, tmp_path, target):
    """LEDGER-18"""
    (fed / "inbox/form-1.csv").write_text(ANSWERS + SWALLOWED)
    asked("import")
    put_in_again(fed, chartferry, tmp_path)
    [batch] = [each["batch_id"] for each in asked("import")["batches"]]
    chartferry("undo", batch)
    (fed / "inbox/form-2.csv").write_text(ANSWERS + SWALLOWED + GOOD)
    assert asked("import")["totals"]["rejected"] == 1
    assert rejects(fed)[-1] == ("open",)


def test_a_doubtful_row_says_nothing_of_a_row_with_its_key(fed, asked, target):
    """LEDGER-13: what may have been misread does not reject what was read well."""
    (fed / "inbox/call-1.csv").write_text(TASKS + TORN + "k1,p1,whole,requested,a\n")
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (1, 1)


@pytest.mark.long
def test_a_key_that_thousands_of_rows_share_is_rejected(fed, asked, target):
    """LEDGER-13: each row is rejected by itself, with a reason that says what to look at; others go on."""
    rows = io.StringIO()
    csv.writer(rows).writerows(["all", "p1", "q1", "1", f"text {number}"] for number in range(5_001))
    (fed / "inbox/form-1.csv").write_text(ANSWERS + rows.getvalue() + GOOD)
    found = asked("import")
    totals_close(found)
    assert (found["totals"]["rejected"], found["totals"]["created"]) == (5_001, 1)
    with closing(sqlite3.connect(fed / "ledger.db")) as ledger:
        [(message,)] = ledger.execute("SELECT DISTINCT message FROM reject_reason").fetchall()
    assert "5,000 rows of this file have this key" in message
