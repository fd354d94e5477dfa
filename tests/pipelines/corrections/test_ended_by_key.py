"""Rejects and the records of their keys: what a record of a key says of a row that has, or had, this key."""

import json

import pytest

from tests.support.exports import feed_file

pytestmark = pytest.mark.usefixtures("additions")

TASKS = "task_id,description,status,requester_id\n"


@pytest.fixture
def tasks(practice):
    """The feed of tasks whose changes are applied: with the policy `update`."""
    feed_file(practice.home, "call", 'kind = "tasks"\nfiles = ["call*"]\nchanged = "update"\n', TASKS)
    return practice


@pytest.mark.parametrize("key", [b"t1-b", b"t 1"])
def test_an_update_of_a_key_does_not_close_the_reject_of_a_row_whose_key_was_corrected(tasks, key):
    """LEDGER-07: a plain export updates the task that was loaded beside the row."""
    tasks.take(TASKS + "t1,first,requested,a\nt1,second,requested,a\n", "call-1.csv")
    (export,) = tasks.export().values()
    head, first, second = export.splitlines(keepends=True)
    tasks.take(head + first + second.replace(b",t1,", b"," + key + b",").replace(b"requested", b"odd"), "fixed.csv")
    assert tasks.take(TASKS + "t1,first again,requested,a\n", "call-2.csv")[1]["totals"]["updated"] == 1
    assert tasks.rows("SELECT line, state FROM reject ORDER BY line") == [(2, "closed"), (3, "open")]
    (left,) = tasks.export().values()
    assert b"second,odd" in left


def test_a_change_closes_the_reject_of_a_row_that_was_corrected_and_has_its_key_still(tasks):
    """CLI-CMD-05"""
    tasks.take(TASKS + "t1,first,requested,a\n", "call-1.csv")
    tasks.take(TASKS + "t1,second,odd,a\n", "call-2.csv")
    (export,) = tasks.export().values()
    tasks.take(export.replace(b"odd", b"strange"), "fixed.csv")
    assert tasks.rejects() == {"t1": ("open", 2)}
    tasks.take(TASKS + "t1,second,requested,a\n", "call-3.csv")
    assert tasks.rejects() == {"t1": ("closed", 2)}


def test_a_reject_for_a_known_key_says_so_once_the_known_record_is_taken_back(practice):
    """LEDGER-08, TAKEN-BACK: the reason named a batch whose resources are all gone."""
    first = practice.take(TASKS + "t1,first,requested,a\n", "tasks-1.csv")[1]["batches"][0]["batch_id"]
    second = practice.take(TASKS + "t1,second,requested,a\n", "tasks-2.csv")[1]["batches"][0]["batch_id"]
    (export,) = practice.export().values()
    assert f"known with other content, from line 2 of {first}".encode() in export
    assert practice.run("undo", first)[0] == 0
    (export,) = practice.export().values()
    assert b"LEDGER-08" not in export
    assert f"the record was taken back by undo of {first}".encode() in export
    (reject,) = json.loads(practice.run("status", second, "--json")[1])["batches"][0]["rejects"]
    assert reject["rules"] == ["TAKEN-BACK"]
    assert practice.take(export, "fixed.csv")[0] == 0
    assert practice.rejects() == {"t1": ("closed", 1)}
    standing = [body["description"] for body in practice.target.of("Task") if body["status"] == "requested"]
    assert standing == ["second"]


def test_a_record_with_the_corrected_key_of_a_row_closes_its_reject_until_it_is_undone(tasks):
    """LEDGER-07: it came in a file without reject ids."""
    tasks.take(TASKS + "t1,first,odd,a\n", "call-1.csv")
    (export,) = tasks.export().values()
    tasks.take(export.replace(b",t1,", b",t2,"), "fixed.csv")
    (batch,) = tasks.take(TASKS + "t2,first,requested,a\n", "call-2.csv")[1]["batches"]
    assert tasks.rows("SELECT state, closed_by_batch FROM reject") == [("closed", batch["batch_id"])]
    assert tasks.run("undo", batch["batch_id"])[0] == 0
    assert tasks.rows("SELECT state, closed_by_batch FROM reject") == [("open", None)]


def test_a_change_of_another_task_does_not_end_the_reject_of_a_row_that_was_given_its_key(tasks):
    """LEDGER-07: the key was mistyped."""
    tasks.take(TASKS + "t1,first,odd,a\nt2,another,requested,a\n", "call-1.csv")
    (export,) = tasks.export().values()
    tasks.take(export.replace(b",t1,", b",t2,"), "fixed.csv")
    assert tasks.take(TASKS + "t2,another one,requested,a\n", "call-2.csv")[1]["totals"]["updated"] == 1
    assert tasks.rejects() == {"t1": ("open", 2)}
