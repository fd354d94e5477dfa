"""Two processes retry the open rejects of one batch at once: each record is sent once, and no reject is lost.

Both read which rejects are open, and check the records, without the lease. Under the lease, a load decides each record
anew by what the ledger says of it then, so that the second one finds those of the first.
"""

import json

import pytest

from tests.support.exports import TASKS
from tests.support.giving_back import HEADER

POINTS = ("importing.retry.lines_by_batch", "runs.batch.load_run")
"""Steps of a retry. Another retry runs to its end before one of them: behind the last, it waits for the lease."""


def another_before(monkeypatch, point, does):
    """Do something else before the first call of a function."""
    module, _, name = f"pipelines.{point}".rpartition(".")
    function = getattr(__import__(module, fromlist=[name]), name)

    def called(*arguments, **options):
        monkeypatch.setattr(f"{module}.{name}", function)
        does()
        return function(*arguments, **options)

    monkeypatch.setattr(f"{module}.{name}", called)


@pytest.mark.alike
@pytest.mark.parametrize("point", POINTS)
def test_two_retries_at_once_send_each_refused_row_once_and_wrong_rows_stay_open(practice, monkeypatch, point):
    """CLI-CMD-06, LEDGER-01"""
    practice.target.refuse = lambda body: body["amount"]["value"] > 1
    practice.take(HEADER + "k1,p1,1,2026-01-01,\nk2,p1,2,2026-01-01,\nk3,p1,3,2026-01-01,\nk4,p1,no,2026-01-01,\n")
    practice.target.refuse = lambda body: body["amount"]["value"] == 3
    others = []
    another_before(monkeypatch, point, lambda: others.append(practice.run("rejects", "retry")))
    practice.run("rejects", "retry")
    assert [other[0] for other in others] == [3]
    assert practice.created() == ["k1", "k2"]
    states = {key: state for key, (state, _) in practice.rejects().items()}
    assert states == {"k2": "closed", "k3": "open", "k4": "open"}
    assert practice.rows("SELECT state FROM batch") == [("finished",)]
    practice.target.refuse = lambda body: False
    code, said, _ = practice.run("rejects", "retry", "--json")
    assert (code, json.loads(said)["totals"]["created"]) == (3, 1)
    assert practice.run("verify")[0] == 0


@pytest.mark.alike
@pytest.mark.parametrize("point", POINTS)
def test_a_record_that_was_taken_back_is_loaded_once_by_two_retries(practice, monkeypatch, point):
    """CLI-CMD-06, LEDGER-18"""
    practice.target.additions = False
    rows = TASKS + "t1,p1,call,requested,a\nt2,p1,call,requested,a\n"
    batch = practice.take(rows, "tasks-1.csv")[1]["batches"][0]["batch_id"]
    assert practice.run("undo", batch)[0] == 0
    practice.take(rows + "t3,p1,call,requested,a\n", "tasks-2.csv")
    others = []
    another_before(monkeypatch, point, lambda: others.append(practice.run("rejects", "retry", "--taken-back")))
    practice.run("rejects", "retry", "--taken-back")
    assert [other[0] for other in others] == [0]
    there = [body for body in practice.target.of("Task") if body["status"] == "requested"]
    assert len(there) == 3
    assert {state for state, _ in practice.rejects().values()} == {"closed"}
    assert practice.run("verify")[0] == 0
