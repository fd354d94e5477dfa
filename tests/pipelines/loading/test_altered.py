"""A target that alters what it is given: a row whose answer was lost is there, and looks like nothing that was sent."""

import json

import pytest

from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work

MOST = 20


class Altering(FakeTarget):
    """It keeps the beginning of a description."""

    def create(self, body, condition=None):
        return super().create(body | {"description": body["description"][:MOST]}, condition)


def task(number, words, **more):
    about = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": f"{number} {words}"}
    body = about | {"for": {"reference": "Patient/p1"}, "requester": {"reference": "Practitioner/a"}} | more
    return (number + 1, 1, f"k{number}", "p1", number, f"hash {number}", "p1", None, None, json.dumps(body))


@pytest.fixture
def bare(tmp_path):
    """Work at a bare target that alters descriptions."""
    target = Altering(additions=False)
    with serving(target):
        work = Work(tmp_path, target)
        work.follow("tasks")
        yield work
        work.close()


@pytest.mark.parametrize("more", [{}, {"authoredOn": "2026-01-05"}], ids=["first attempt", "own time"])
def test_a_lost_row_that_the_target_has_in_other_words_is_not_sent_again(bare, more):
    """TARGET-03, LEDGER-01: what came at the time of the row, is new, and is no other row's, may be the row."""
    rows = [task(number, "short" if number else "much longer than the target keeps", **more) for number in range(3)]
    bare.target.faults = ["lost_after"]
    bare.run(rows)
    bare.run(rows, settling=0)
    assert len(bare.target.stored) == 1
    assert bare.states() == {"k0": "in_doubt"}


def test_an_unlike_resource_that_somebody_made_meanwhile_does_not_hold_up_a_lost_row(bare):
    """LEDGER-05"""
    rows = [task(number, "short") for number in range(2)]
    bare.target.faults = ["lost_before"]
    bare.run(rows)
    bare.target.create(json.loads(task(7, "of the chart", authoredOn="2026-02-01T09:00:00Z")[-1]))
    bare.run(rows, settling=0)
    assert sorted(bare.states().values()) == ["created", "created"]
