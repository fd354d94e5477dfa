"""Rows that refer to a patient or practitioner whom a target does not have, and which it would take."""

from contextlib import closing, contextmanager

import pytest

from pipelines.client.profiles import Profile
from pipelines.loading import references
from pipelines.loading.row import AcceptedRow
from tests.support.exports import put
from tests.support.fake_answers import outcome
from tests.support.fake_target import FakeTarget, serving
from tests.support.validating import PAYMENTS
from tests.support.work import Work, payment, response, task

SAYS = ("identifier", "reference", "searched")
WAYS = ((), ("batch", "conditional"), ("transaction", "conditional"), ("conditional",))


@contextmanager
def working(tmp_path, says=(*SAYS, *WAYS[1]), people=("p1", "p2", "a")):
    """A home and a target with these people."""
    with serving(FakeTarget(says=says)) as target, closing(Work(tmp_path, target)) as home:
        for name in people:
            kind = "Practitioner" if name == "a" else "Patient"
            target.stored[name] = {"resourceType": kind, "id": name, "photo": "large"}
        yield home, target


def made(target, kind="PaymentNotice"):
    return sorted(body["identifier"][0]["value"] for body in target.of(kind))


def reasons(home):
    told = home.ledger.tables()["reject_reason"].to_pylist()
    return [(each["rule_id"], each["expression"], each["message"], each["retryable"]) for each in told]


def asked(target):
    """The types of people that were searched for."""
    return [each["type"][0] for each in target.searches if "_id" in each and each["type"][0] != "Task"]


@pytest.mark.parametrize("way", WAYS, ids=["look-up", "batch", "transaction", "conditional"])
def test_a_row_of_a_patient_who_is_not_there_is_a_reject_and_is_sent_once_the_patient_is(tmp_path, way):
    """TARGET-08"""
    with working(tmp_path, (*SAYS, *way)) as (home, target):
        rows = [payment(number, f"p{number % 3 + 1}") for number in range(9)]
        assert home.run(rows).counts == {"created": 6, "rejected": 3}
        assert made(target) == ["k0", "k1", "k3", "k4", "k6", "k7"]
        assert set(reasons(home)) == {("TARGET-08", "PaymentNotice.request", "Patient/p3 is not at the target", True)}
        target.stored["p3"] = {"resourceType": "Patient", "id": "p3"}
        assert home.run(rows).counts == {"created": 3, "unchanged": 6}
        assert len(made(target)) == 9


def test_practitioners_are_looked_up_too_and_each_resource_once(tmp_path):
    """TARGET-08"""
    with working(tmp_path, people=("p1", "p2")) as (home, target):
        home.follow("tasks")
        target.stored["b"] = {"resourceType": "Practitioner", "id": "b"}
        rows = [task(number, f"p{number % 2 + 1}") for number in range(4)]
        rows += [
            task(number, f"p{number % 2 + 1}", requester={"reference": "Practitioner/b"}) for number in range(4, 8)
        ]
        assert home.run(rows).counts == {"created": 4, "rejected": 4}
        assert {each[1:3] for each in reasons(home)} == {("Task.requester", "Practitioner/a is not at the target")}
        assert sorted(asked(target)) == ["Patient", "Practitioner"]


CHANGES = {  # a policy, a row before and after it names somebody who is not there, and its reason
    "tasks": ("update", task(1), task(1, owner={"reference": "Practitioner/z"}), "Task.owner", "Practitioner/z"),
    "answers": ("supersede", response(1), response(1, "p9"), "QuestionnaireResponse.subject", "Patient/p9"),
}


@pytest.mark.parametrize("feed", CHANGES)
def test_a_change_that_refers_to_somebody_missing_is_a_reject_and_is_made_once_that_is_there(tmp_path, feed):
    """TARGET-08"""
    with working(tmp_path) as (home, target):
        policy, before, after, element, name = CHANGES[feed]
        home.follow(feed, policy)
        assert home.run([before]).counts == {"created": 1}
        [there] = target.of(element.split(".")[0])
        assert home.run([after], "b2").counts == {"rejected": 1}
        assert target.of(there["resourceType"]) == [there]
        assert reasons(home) == [("TARGET-08", element, f"{name} is not at the target", True)]
        kind, _, resource_id = name.partition("/")
        target.stored[resource_id] = {"resourceType": kind, "id": resource_id}
        assert home.run([after], "b2").counts == {f"{policy}d": 1}
        assert name in str(target.of(there["resourceType"]))


@pytest.mark.parametrize("policy", ["statement", "profile"])
def test_nothing_is_looked_up_at_a_target_that_checks_references_itself(tmp_path, policy):
    """TARGET-08"""
    says = (*SAYS, *WAYS[1], *(["enforced"] if policy == "statement" else []))
    with working(tmp_path, says) as (home, target):
        home.client.profile = Profile(checks_references=policy == "profile")
        assert home.run([payment(1, "p3")]).counts == {"created": 1}
        assert asked(target) == []


def test_a_target_whose_search_shows_no_patients_proves_no_absence(tmp_path):
    """TARGET-08: rows are sent, and the import says that nothing was checked."""
    with working(tmp_path, people=()) as (home, _):
        assert home.run([payment(number, f"p{number}") for number in range(3)]).counts == {"created": 3}
        assert home.progress.lines == [references.NOT_SHOWN.format("Patient")]


def test_a_search_for_patients_that_is_refused_keeps_no_row_back(tmp_path):
    """TARGET-08"""
    with working(tmp_path) as (home, target):
        target.refused_parameters = {"_id"}
        assert home.run([payment(1, "p3"), payment(2, "p1")]).counts == {"created": 2}
        assert home.progress.lines == [references.NOT_SHOWN.format("Patient")]


def test_a_patient_whom_a_search_does_not_show_yet_is_read(tmp_path):
    """TARGET-08: indexes may lag behind."""
    with working(tmp_path) as (home, target):
        target.not_indexed = {"p2"}
        assert home.run([payment(1, "p2"), payment(2, "p1")]).counts == {"created": 2}


def test_a_text_that_looks_like_a_reference_is_not_looked_up(tmp_path):
    """TARGET-08"""
    with working(tmp_path) as (home, _):
        home.follow("tasks")
        assert home.run([task(1, "p1", text='"reference":"Patient/p9"')]).counts == {"created": 1}


def test_the_memory_of_looked_up_references_is_bounded(tmp_path, monkeypatch):
    """TARGET-08"""
    monkeypatch.setattr(references, "MOST_KEPT", 3)
    with working(tmp_path, people=[f"p{number}" for number in range(8)]) as (home, _):
        looked = references.References.at(home.client, home.client.capabilities(), "Task", home.progress)
        for number in range(10):
            body = f'{{"resourceType":"Task","for":{{"reference":"Patient/p{number}"}}}}'
            row = AcceptedRow(2, 1, "k", "p", "", "p", None, None, body, "2026-03-01T12:00:00Z")
            assert bool(looked.reasons([row])) is (number > 7)
            assert len(looked._known) <= 4


def test_a_target_that_fails_at_the_look_up_gets_the_rows_all_the_same(tmp_path, monkeypatch):
    """TARGET-08: whether rows can be sent shows when they are sent."""
    with working(tmp_path) as (home, target):
        monkeypatch.setattr(target, "instead", outcome("exception"))
        assert home.run([payment(1, "p3")]).counts == {"created": 1}


def test_a_dry_run_says_the_same_and_sends_nothing(home, target, asked):
    """TARGET-08"""
    target.additions, target.promised = False, [*SAYS, *WAYS[1]]
    target.stored["p1"] = {"resourceType": "Patient", "id": "p1"}
    put(home, "payments-1.csv", PAYMENTS + "a,p1,10.00,2026-03-01,\nb,p2,20.00,2026-03-01,\n")
    [dry] = asked("import", "--dry-run")["batches"]
    assert (dry["waiting"], dry["counts"]["rejected"]) == (1, 1)
    assert dry["reasons"] == {"TARGET-08": 1}
    assert target.of("PaymentNotice") == []
    [batch] = asked("import")["batches"]
    assert (batch["counts"]["created"], batch["counts"]["rejected"], batch["reasons"]) == (1, 1, dry["reasons"])
    target.stored["p2"] = {"resourceType": "Patient", "id": "p2"}
    [again] = asked("rejects", "retry")["batches"]
    assert (again["counts"]["created"], len(target.of("PaymentNotice"))) == (1, 2)
