"""Rows that a target without conditional create is asked for before they are sent: another home may have sent them."""

import json
from contextlib import closing

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.replies import NotSent
from pipelines.loading import lookup_before_sending
from tests.support.fake_target import FakeTarget, identifiers, serving
from tests.support.work import Work, payment

IGNORED = (
    "the target does not search by identifier: rows that another home has sent would not be found, and are sent again"
)
NOT_SHOWN = (
    "the target does not show by its identifier what is known to be there:"
    " rows that another home has sent would not be found, and are sent again"
)


@pytest.fixture
def target():
    with serving(FakeTarget(says=["identifier"])) as target:
        yield target


@pytest.fixture
def homes(tmp_path, target):
    """Two homes with ledgers of their own."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with closing(Work(tmp_path / "one", target)) as one, closing(Work(tmp_path / "two", target)) as two:
        yield one, two


def payments(*numbers):
    return [payment(number, patient=f"p{number % 7}") for number in numbers]


def task(number, description="Call"):
    body = {"resourceType": "Task", "status": "requested", "intent": "unknown", "for": {"reference": "Patient/p1"}}
    text = json.dumps(body | {"description": f"{description} {number}"})
    return (number + 1, 1, f"k{number}", f"task/k{number}", number, f"hash {text}", "p1", None, None, text)


def keys(target):
    return sorted(body["identifier"][0]["value"] for body in target.stored.values())


def asked_for(target):
    """How many identifiers each search by identifier asked for, apart from the one that no record has."""
    searches = (each["identifier"][0].split(",") for each in target.searches if "identifier" in each)
    return sorted((len(values) for values in searches if "nobody" not in values[0]), reverse=True)


@pytest.mark.alike
@pytest.mark.parametrize("make", [payments, lambda *numbers: list(map(task, numbers))], ids=["payments", "tasks"])
def test_a_second_home_adopts_existing_rows_and_sends_the_others(homes, target, make):
    """LEDGER-01, LEDGER-15: 25 rows a search."""
    one, two = homes
    for home in homes:
        home.follow("tasks" if make is not payments else "payments")
    assert one.run(make(*range(60))).counts == {"created": 60}
    assert asked_for(target) == [25, 25, 10]
    del target.searches[:]
    assert two.run(make(*range(90))).counts == {"adopted": 60, "created": 30}
    assert asked_for(target) == [25, 25, 25, 15]
    assert keys(target) == sorted(f"k{number}" for number in range(90))
    assert two.run(make(*range(90)), resuming=False).counts == {"unchanged": 90}
    assert two.progress.lines == []
    two.agree()


def test_a_key_that_the_target_has_with_other_content_or_twice_is_a_reject(homes, target):
    """LEDGER-15: as where the create itself asks. Nothing is sent."""
    one, two = homes
    one.run(payments(0, 1, 2))
    bodies = {body["identifier"][0]["value"]: body for body in target.stored.values()}
    bodies["k1"]["amount"] = {"value": 99, "currency": "USD"}
    target.stored["again"] = bodies["k2"] | {"id": "again"}
    assert two.run(payments(0, 1, 2)).counts == {"adopted": 1, "refused": 2}
    assert sorted((row["rule_id"], row["message"], row["retryable"]) for row in two.table("reject_reason")) == [
        ("KEY-TAKEN", "the target has a resource with this key, but with other content", False),
        ("KEY-TAKEN", "the target has several resources with this key", False),
    ]
    assert len(target.stored) == 4


def test_a_change_is_not_asked_for(homes, target):
    one, _ = homes
    one.follow("tasks", "update")
    one.run([task(1), task(2)])
    del target.searches[:]
    assert one.run([task(1, "Write"), task(2, "Write")], "tasks-2").counts == {"updated": 2}
    assert (asked_for(target), target.puts) == ([], 2)


def test_a_target_that_shows_everything_is_asked_once_and_gets_its_rows(homes, target):
    """TARGET-03: one search of one resource, however many it has. Said once a load."""
    one, two = homes
    target.does_not = {"identifier"}
    assert one.run([payment(number, patient=f"p{number}") for number in range(400)]).counts == {"created": 400}
    assert one.progress.lines == [IGNORED]
    assert len(asked_for(target)) < 12, "of 16: not once more after the first answer that shows it"
    del target.searches[:]
    assert two.run(payments(*range(60))).counts == {"created": 60}
    assert two.progress.lines == [IGNORED]
    assert asked_for(target) == []


def test_a_target_that_refuses_the_search_gets_its_rows(homes, target):
    one, _ = homes
    target.refused_parameters = {"identifier"}
    assert one.run(payments(*range(60))).counts == {"created": 60}
    assert one.progress.lines == [IGNORED]


def test_a_load_reports_a_search_that_hides_rows_known_to_be_there(homes, target):
    """TARGET-03: rows that a search does not show are sent as before."""
    one, two = homes
    one.run(payments(0, 1, 2))
    target.not_indexed = set(target.stored)
    assert two.run(payments(0, 1, 2)).counts == {"created": 3}
    assert two.progress.lines == [], "nothing is known to be there"
    target.not_indexed = set(target.stored)
    assert one.run(payments(3, 4), "payments-2").counts == {"created": 2}
    assert one.progress.lines == [NOT_SHOWN]


@pytest.mark.parametrize("which", ["finds_nobody", "named"])
def test_no_row_is_sent_unasked_to_a_target_that_does_not_answer(homes, target, monkeypatch, which):
    """LEDGER-01"""
    one, two = homes
    one.run(payments(0, 1, 2))

    def failing(*_):
        raise NotSent("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(FhirClient, which, failing)
        loaded = two.run(payments(0, 1, 2, 3))
        why = "the target could not be used: the target could not be asked (no connection)"
        assert (loaded.unusable, loaded.counts["created"]) == (why, 0)
    assert set(two.states().values()) <= {"planned"}
    assert two.run(payments(0, 1, 2, 3)).counts == {"adopted": 3, "created": 1}
    assert len(target.stored) == 4


def test_a_kill_between_the_search_and_the_create_leaves_nothing_in_doubt(homes, target, monkeypatch):
    """LEDGER-05, LEDGER-10: what was found is forgotten, and asked for again."""
    one, two = homes

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(lookup_before_sending, "_outcome", killed)
        with pytest.raises(Killed):
            two.run(payments(0, 1, 2))
    assert two.states() == {}
    one.run(payments(0, 1))
    assert two.run(payments(0, 1, 2)).counts == {"adopted": 2, "created": 1}
    two.agree()


class WithoutCase(FakeTarget):
    """Finds identifiers in any case, as LinuxForHealth does."""

    def found(self, kind, query):
        if "identifier" not in query:
            return super().found(kind, query)
        wanted = query["identifier"][0].casefold().split(",")
        return [body for body in self.of(kind) if any(each.casefold() in wanted for each in identifiers(body))]


def test_a_resource_whose_key_differs_in_case_is_not_adopted_and_the_row_is_set_aside(tmp_path):
    """LEDGER-01, LEDGER-15: although a payment of the same amount has that key."""
    with serving(WithoutCase(says=["identifier"])) as target, closing(Work(tmp_path, target)) as work:
        assert work.run(payments(*range(1, 40))).counts == {"created": 39}
        more = [payment(41, patient="p2", key="K16"), payment(42, patient="p2", cents=700, key="K2")]
        assert work.run(more, "payments-2").counts == {"created": 1, "refused": 1}
        assert work.states()["K16"] == "refused"
        [reason] = work.table("reject_reason")
        assert (reason["rule_id"], "differs from this one only in case" in reason["message"]) == ("KEY-TAKEN", True)
        work.agree()
