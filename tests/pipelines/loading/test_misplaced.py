"""Servers that answer the entries of a batch in another order: no row gets the resource, or the refusal, of another."""

import pytest

from tests.support.fake_answers import outcome
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work, payment

BATCH = ["batch", "conditional", "identifier", "searched"]
WORDS = "the target answers the entries of a batch in another order than they were sent, so rows are sent one by one"


@pytest.fixture(params=[False, True], ids=["by place alone", "with resources"])
def at(tmp_path, request):
    """Work at a server of another make that takes batches."""
    with serving(FakeTarget(says=BATCH)) as target:
        target.brings = request.param
        work = Work(tmp_path, target)
        yield work
        work.close()


def backwards(answers):
    return answers[::-1]


def refusals_first(answers):
    return sorted(answers, key=lambda each: each["response"]["status"] != "422")


def truth(work):
    """By key, the resource at the target."""
    return {body["identifier"][0]["value"]: name for name, body in work.target.stored.items()}


def known(work):
    """By key, the resource that the ledger has."""
    return {row["key"]: row["resource_id"] for row in work.table("record") if row["resource_id"]}


def test_rows_go_one_by_one_to_a_server_that_answers_in_another_order(at):
    """TARGET-02, LEDGER-01: k1 had the id of k29, and what was taken back of it was another payment's."""
    at.target.order = backwards
    counts = at.run([payment(number, patient=f"p{number}", cents=100 + number) for number in range(80)]).counts
    assert (sum(counts.values()), counts["created"] + counts["adopted"], counts["in_doubt"]) == (80, 80, 0)
    assert known(at) == truth(at)
    assert at.progress.lines == [WORDS]


@pytest.mark.parametrize("refused", [3, 10, 60])
def test_a_refusal_is_that_of_its_row_or_of_none(at, refused):
    """TARGET-02, LEDGER-01: the row at its place was there, and a reject; the refused one was no reject."""
    at.target.order = refusals_first
    at.target.refuse = lambda body: body["identifier"][0]["value"] == f"k{refused}"
    at.run([payment(number, patient=f"p{number}", cents=100 + number) for number in range(80)])
    assert known(at) == truth(at)
    assert {key for key, state in at.states().items() if state == "refused"} <= {f"k{refused}"}


def test_a_refusal_in_its_place_is_a_reject_and_the_other_rows_are_in(at):
    """TARGET-02"""
    at.target.refuse = lambda body: body["identifier"][0]["value"] in ("k10", "k60")
    loaded = at.run([payment(number, patient=f"p{number}", cents=100 + number) for number in range(80)])
    assert loaded.counts == {"created": 78, "refused": 2}
    assert known(at) == truth(at)
    assert not at.progress.lines


def test_one_resource_id_in_two_answers_is_given_to_neither_row(at):
    """TARGET-02, LEDGER-01"""
    at.target.brings = False
    at.target.order = lambda answers: [answers[0]] * len(answers)
    at.run([payment(number, patient=f"p{number}", cents=100 + number) for number in range(80)])
    assert known(at) == truth(at)


def test_a_key_that_another_resource_has_is_refused_in_a_batch_too(at):
    """LEDGER-01: what is there under the key is no sign of another order."""
    at.target.create({**_body(50), "amount": {"value": 9.99, "currency": "USD"}}, "identifier=" + _name(50))
    loaded = at.run([payment(number, patient=f"p{number}", cents=100 + number) for number in range(80)])
    assert loaded.counts == {"created": 79, "refused": 1}
    assert at.states()["k50"] == "refused"


def _name(number):
    return f"urn:chartferry:default:PaymentNotice|k{number}"


def _body(number):
    system, _, value = _name(number).partition("|")
    return {
        "resourceType": "PaymentNotice",
        "request": {"reference": f"Patient/p{number}"},
        "identifier": [{"system": system, "value": value}],
    }


def test_several_that_match_are_refused_in_their_place(at, monkeypatch):
    """LEDGER-01"""
    create = at.target.create

    def several(body, condition=None):
        if "k50" in str(condition):
            return 412, None, outcome("duplicate")
        return create(body, condition)

    monkeypatch.setattr(at.target, "create", several)
    for cents in (150, 150):
        create({**_body(50), "amount": {"value": cents / 100, "currency": "USD"}})
    loaded = at.run([payment(number, patient=f"p{number}", cents=100 + number) for number in range(80)])
    assert loaded.counts == {"created": 79, "refused": 1}
