"""Targets whose conditions and searches do not see yet what was stored a moment before, and that fail once it is."""

import pytest

from tests.pipelines.loading.test_bad_targets import task
from tests.support.fake_answers import Said, outcome
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work, payment

WAYS = {
    "conditional": ["conditional", "identifier"],
    "batch": ["batch", "conditional", "identifier"],
}


class Late(FakeTarget):
    """From its first fault on, neither a condition nor a search sees what it stores, until its index has caught up."""

    is_late = False

    def create(self, body, condition=None):
        before = set(self.stored)
        answer = super().create(body, condition)
        self.is_late = self.is_late or not any(self.faults)
        if self.is_late:
            self.not_indexed |= self.stored.keys() - before
        self.identified = {key: of for key, of in self.identified.items() if of[1] not in self.not_indexed}
        return answer

    def catch_up(self):
        self.not_indexed.clear()
        for name, body in self.stored.items():
            [named] = body["identifier"]
            self.identified[f"{named['system']}|{named['value']}"] = (body["resourceType"], name)


@pytest.mark.parametrize("says", WAYS.values(), ids=list(WAYS))
def test_a_row_that_the_target_stored_before_it_failed_is_retried_only_after_the_settling_time(tmp_path, says):
    """TARGET-03, LEDGER-01: the target itself says that it failed, and has the row."""
    target = Late(says=says)
    with serving(target):
        work = Work(tmp_path, target)
        target.faults = ["", "", "", Said(500, outcome("exception"), done=True)]
        rows = [payment(number, patient=f"p{number % 5}") for number in range(30)]
        work.run(rows)
        assert len(target.stored) <= 30
        target.catch_up()
        work.run(rows, settling=0)
        work.agree()
        assert sorted(each["identifier"][0]["value"] for each in target.stored.values()) == sorted(r[2] for r in rows)
        work.close()


class Replicated(FakeTarget):
    """Shows nothing of what it has stored, until its copy has caught up. Its conditions see it."""

    is_behind = False

    def falls_behind(self):
        self.is_behind = True
        return False

    def found(self, kind, query):
        return [] if self.is_behind else super().found(kind, query)

    def shown(self, name):
        return None if self.is_behind else super().shown(name)


@pytest.mark.parametrize("says", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("resource", ["tasks", "payments"])
def test_a_resource_that_a_condition_finds_and_a_lagging_read_does_not_leaves_the_row_in_doubt(
    tmp_path, says, resource
):
    """TARGET-03, LEDGER-01: a copy that is behind answered 404, and the row became a reject although it was there."""
    target = Replicated(says=says)
    with serving(target):
        work = Work(tmp_path, target)
        work.follow(resource)
        rows = [task(n) if resource == "tasks" else payment(n, cents=100 + n) for n in range(3)]
        work.run(rows[:2])
        target.faults, target.refuse = ["lost_after"], lambda body: target.falls_behind()
        work.run(rows)
        work.run(rows, settling=0)
        assert work.states()["k2"] == "in_doubt"
        target.is_behind = False
        work.run(rows, settling=0)
        work.agree()
        work.close()
