"""Searches that answer with status 200 and are no whole page: nobody takes a row for absent by them."""

import json

import pytest

from tests.pipelines.loading.test_bad_targets import task
from tests.support.fake_answers import outcome
from tests.support.fake_target import FakeTarget
from tests.support.work import Work, payment, work_at

EMPTY = {"resourceType": "Bundle", "type": "searchset", "total": 0}
ANSWERS = {
    "a gateway's words": {"message": "maintenance"},
    "an outcome": outcome("exception"),
    "a page that tells of an error": EMPTY | {"entry": [{"resource": outcome("timeout")}]},
    "fewer than it counts": EMPTY | {"total": 1},
}


@pytest.fixture
def at(tmp_path, request):
    """Work at a target that is not the bundled service, and offers what the test asks for."""
    with work_at(tmp_path, FakeTarget(says=request.param)) as work:
        yield work


def away_from_now_on(target, row, answer):
    """When this row comes, searches begin to answer so."""

    def comes(body):
        if body.items() >= json.loads(row[-1]).items():
            target.instead = answer
        return False

    return comes


@pytest.mark.alike
@pytest.mark.parametrize("at", [[], ["identifier"]], ids=["bare", "look-up"], indirect=True)
@pytest.mark.parametrize("resource", ["tasks", "payments"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_a_lost_row_is_not_absent_because_a_search_did_not_answer(at, resource, answer):
    """TARGET-03, LEDGER-01: after the settling time it would be sent once more."""
    at.follow(resource)
    rows = [task(n) if resource == "tasks" else payment(n, cents=100 + n) for n in range(3)]
    at.target.faults, at.target.refuse = ["", "", "lost_after"], away_from_now_on(at.target, rows[2], answer)
    assert at.run(rows).counts == {"created": 2, "in_doubt": 1}
    assert set(at.run(rows, settling=0).counts) <= {"unchanged", "in_doubt"}
    assert len(at.target.stored) <= 3
    at.target.instead = None
    at.run(rows, settling=0)
    assert sorted(at.states().values()) == ["adopted", "created", "created"]
    at.agree()


@pytest.mark.parametrize("at", [["identifier"]], ids=["look-up"], indirect=True)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_a_second_home_sends_nothing_while_no_search_answers(at, tmp_path, answer):
    """TARGET-02, LEDGER-01"""
    rows = [payment(number) for number in range(3)]
    at.run(rows)
    (tmp_path / "other").mkdir()
    other = Work(tmp_path / "other", at.target)
    at.target.instead = answer
    assert other.run(rows).unusable
    at.target.instead = None
    assert other.run(rows).counts == {"adopted": 3}
    assert len(at.target.stored) == 3
    other.close()
