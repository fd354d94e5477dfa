"""The steps by which rows reach a target of another make: what is sent, refused, unclear, or only promised."""

import json

import pytest

from pipelines.client.capabilities import capabilities_of
from pipelines.client.client import FhirClient
from pipelines.client.steps import BARE, BATCH, LOOK_UP, SINGLE, TRANSACTION, step_for
from pipelines.client.tokens import Credentials
from pipelines.client.whole import whole_search
from pipelines.ledger.ledger import Ledger
from pipelines.loading.intake import Intake
from pipelines.loading.stage import load
from tests.conftest import running
from tests.support.fake_answers import Said
from tests.support.fake_target import FakeTarget
from tests.support.ledgers import lose_ledger
from tests.support.payers import practice
from tests.support.work import Work, payment, work_at

HTML = b"<html>Bad Gateway</html>"
WAYS = {
    "batch": ["batch", "conditional"],
    "transaction": ["transaction", "conditional"],
    "conditional": ["conditional"],
}
CONDITIONAL = pytest.mark.parametrize("at", [{"says": says} for says in WAYS.values()], ids=list(WAYS), indirect=True)
IN_TRANSACTIONS = pytest.mark.parametrize("at", [{"says": WAYS["transaction"]}], ids=["transaction"], indirect=True)


@pytest.fixture
def at(tmp_path, request):
    """Work at a target that is not the bundled service, and offers what the test asks for."""
    with work_at(tmp_path, FakeTarget(**request.param)) as work:
        yield work


def keys(work):
    """The keys that the target has, in the order in which they were stored."""
    return [body["identifier"][0]["value"] for body in work.target.stored.values()]


def statement(*offered, conditional=False, identifier=False):
    resource = {"type": "Task", "conditionalCreate": conditional}
    resource |= {"searchParam": [{"name": "identifier"}]} if identifier else {}
    return capabilities_of({"rest": [{"interaction": [{"code": code} for code in offered], "resource": [resource]}]})


def test_the_statement_decides_how_rows_are_sent():
    """TARGET-02, TARGET-03"""
    assert step_for(statement("batch", "transaction", conditional=True), "Task") == BATCH
    assert step_for(statement("transaction", conditional=True), "Task") == TRANSACTION
    assert step_for(statement(conditional=True, identifier=True), "Task") == SINGLE
    assert step_for(statement("batch", "transaction", identifier=True), "Task") == LOOK_UP
    assert step_for(statement("batch", "transaction"), "Task") == BARE
    assert step_for(statement("batch", conditional=True), "PaymentNotice") == BARE


def test_the_client_mode_of_a_capability_statement_is_ignored():
    """TARGET-01: else the target counted as the bare interface, where rows are known by their content alone."""
    offers = {"mode": "server", "resource": [{"type": "Task", "conditionalCreate": True}]}
    statement = {"rest": [{"mode": "client", "resource": [{"type": "Task"}]}, offers]}
    assert step_for(capabilities_of(statement), "Task") == SINGLE
    assert step_for(capabilities_of({"rest": [offers | {"mode": None}]}), "Task") == SINGLE


@pytest.mark.alike
@CONDITIONAL
def test_every_way_makes_each_row_once_in_the_order_of_its_lane(at, monkeypatch):
    """LEDGER-01"""
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 50)
    rows = [payment(number, patient=f"p{number % 7}") for number in range(121)]
    loaded = at.run(rows)
    assert loaded.counts == {"created": 121}
    assert sorted(keys(at)) == sorted(row[2] for row in rows)
    for lane in range(7):
        mine = [row[2] for row in rows if row[3] == f"p{lane}"]
        assert [key for key in keys(at) if key in set(mine)] == mine
    assert at.target.lanes_doubled == 0
    at.agree()
    assert at.run(rows, resuming=False).counts == {"unchanged": 121}


@IN_TRANSACTIONS
def test_a_bad_row_of_a_transaction_is_a_reject_and_the_rest_is_in(at):
    """TARGET-02"""
    bad = {"k100", "k731"}
    at.target.refuse = lambda body: body["identifier"][0]["value"] in bad
    rows = [payment(number) for number in range(1000)]
    loaded = at.run(rows)
    assert loaded.counts == {"created": 998, "refused": 2}
    assert keys(at) == [row[2] for row in rows if row[2] not in bad]
    assert sorted(row["line"] for row in at.table("reject")) == [101, 732]
    assert all("the balance would be negative" in row["message"] for row in at.table("reject_reason"))
    assert at.target.writes <= 3 + 3 + 2 * 2 * 9, "no more than 2 log n exchanges a bad row, besides the first rows"
    at.agree()


@IN_TRANSACTIONS
def test_a_row_on_which_the_target_fails_is_in_doubt_alone_and_goes_again_after_the_settling_time(at):
    """TARGET-03"""
    at.target.fails = lambda body: body["identifier"][0]["value"] == "k100"
    rows = [payment(number, patient=f"p{number}") for number in range(300)]
    loaded = at.run(rows)
    assert loaded.counts == {"created": 299, "in_doubt": 1}
    at.target.fails = lambda body: False
    assert at.run(rows).counts["in_doubt"] == 1
    assert at.run(rows, settling=0).counts["created"] == 1
    at.agree()


@IN_TRANSACTIONS
def test_a_target_that_fails_at_everything_is_left_alone(at):
    at.run([payment(number) for number in range(2)])
    at.target.fails = lambda body: True
    loaded = at.run([payment(number, patient=f"p{number}") for number in range(2, 500)], "payments-2")
    assert "no clear answer, again and again" in loaded.unusable
    assert at.target.writes < 150, "of 1,000 and more, if every row were tried"


@IN_TRANSACTIONS
def test_rows_that_a_lost_answer_has_made_are_adopted_in_one_commit(at):
    """TARGET-03: each flushes the journal to the disk."""
    at.target.faults = ["", "", "", "lost_after"]
    rows = [payment(number, patient=f"p{number}") for number in range(60)]
    assert at.run(rows).counts["adopted"] > 1
    journal = (at.home / "journal.ndjson").read_text(encoding="utf-8").splitlines()
    assert sum('"adopted"' in line for line in journal) == 1


@pytest.mark.alike
@CONDITIONAL
@pytest.mark.parametrize("fault", ["lost_after", "truncated", Said(502, HTML, done=True), Said(504, HTML, done=True)])
def test_a_lost_answer_is_found_by_the_identifier_in_the_same_run(at, fault):
    """TARGET-03"""
    at.target.faults = ["", "", "", fault]
    rows = [payment(number, patient=f"p{number % 5}") for number in range(40)]
    loaded = at.run(rows)
    assert not loaded.counts["in_doubt"]
    assert loaded.counts["created"] + loaded.counts["adopted"] == 40
    assert loaded.counts["adopted"] > 0
    assert sorted(keys(at)) == sorted(row[2] for row in rows)
    at.agree()


@pytest.mark.alike
@CONDITIONAL
def test_a_request_that_a_gateway_brings_late_meets_no_repeat(at):
    """LEDGER-01, TARGET-03: where a condition may not see what is under way, the settling time keeps them apart."""
    at.target.faults = ["", "", "", "held"]
    rows = [payment(number) for number in range(10)]
    loaded = at.run(rows)
    assert loaded.counts["in_doubt"] >= 1
    writes = at.target.writes
    assert at.run(rows).counts["in_doubt"] >= 1
    assert at.target.writes == writes, "nothing goes again before the settling time has passed"
    at.target.arrives()
    last = at.run(rows)
    assert not last.counts["in_doubt"]
    assert sorted(keys(at)) == sorted(row[2] for row in rows)
    at.agree()


@CONDITIONAL
def test_a_request_that_the_network_delivers_twice_makes_one(at):
    """LEDGER-01: the second comes after the first one's answer."""
    at.target.faults = ["", "", "", "twice", "", "twice"]
    rows = [payment(number, patient=f"p{number % 5}") for number in range(40)]
    assert at.run(rows).counts == {"created": 40}
    assert sorted(keys(at)) == sorted(row[2] for row in rows)
    at.agree()


@pytest.mark.alike
@CONDITIONAL
def test_a_request_that_never_arrived_goes_again_after_the_settling_time(at):
    """TARGET-03: a payment too, and without a person."""
    at.target.faults = ["", "", "", "lost_before"]
    rows = [payment(number) for number in range(10)]
    assert at.run(rows).counts["in_doubt"] >= 1
    assert not at.run(rows, settling=0).counts["in_doubt"]
    assert keys(at) == [row[2] for row in rows]
    at.agree()


@pytest.mark.crossed
@CONDITIONAL
@pytest.mark.parametrize("headers", [(), [("retry-after", "7")]], ids=["no header", "retry-after"])
def test_a_target_that_asks_for_fewer_requests_gets_them_later(at, headers):
    at.target.faults = ["", Said(429, None, headers), "", "", Said(429, b"slow down", headers)]
    assert at.run([payment(number) for number in range(9)]).counts == {"created": 9}
    assert (7 in at.pauses) is bool(headers)
    at.agree()


@IN_TRANSACTIONS
def test_a_transaction_that_is_too_large_goes_in_parts(at):
    at.target.limit = 100
    assert at.run([payment(number) for number in range(700)]).counts == {"created": 700}
    assert max(size for size in at.target.sizes[-3:]) <= 100
    at.agree()


@pytest.mark.parametrize("at", [{"says": WAYS["transaction"], "does_not": ["transaction"]}], indirect=True)
def test_a_target_that_refuses_its_promised_transactions_gets_single_conditional_creates(at):
    assert at.run([payment(number) for number in range(30)]).counts == {"created": 30}
    assert len(at.target.sizes) == 1
    assert all(at.target.conditions)
    at.agree()


@pytest.mark.alike
@pytest.mark.parametrize("at", [{"says": says, "does_not": ["conditional"]} for says in WAYS.values()], indirect=True)
def test_a_condition_that_is_ignored_is_found_out_without_a_double(at):
    """LEDGER-01"""
    rows = [payment(number, patient=f"p{number % 5}") for number in range(30)]
    at.target.faults = ["", "", "", "lost_before"]
    loaded = at.run(rows)
    assert loaded.counts["in_doubt"] == 1, "a payment that is not found waits for a person"
    assert at.target.conditions[2:] == [None] * len(at.target.conditions[2:])
    assert len(set(keys(at))) == len(keys(at)) == loaded.counts["created"] + loaded.counts["adopted"]
    at.agree()


@pytest.mark.parametrize("at", [{"says": ["identifier"]}], indirect=True)
@pytest.mark.parametrize("fault", ["lost_after", "lost_before"])
def test_with_a_search_alone_a_lost_payment_is_adopted_or_waits_for_a_person(at, fault):
    at.target.faults = ["", fault]
    rows = [payment(number, patient=f"p{number}") for number in range(9)]
    loaded = at.run(rows, settling=0)
    assert loaded.counts == ({"created": 8, "adopted": 1} if fault == "lost_after" else {"created": 8, "in_doubt": 1})
    assert at.target.conditions == [None] * len(at.target.conditions)
    again = at.run(rows, settling=0)
    assert again.counts["in_doubt"] == loaded.counts["in_doubt"]
    at.agree()


@pytest.mark.parametrize("at", [{"says": ["conditional"]}], indirect=True)
def test_rows_in_doubt_are_found_by_one_search_of_several_pages(at, monkeypatch):
    """TARGET-03: the pages overlap, and no row is taken for one that is there twice."""
    at.target.most_a_page, at.target.faults = 2, ["", "", "", *["lost_after"] * 4]
    rows = [payment(number, patient=f"p{number}") for number in range(9)]
    with monkeypatch.context() as patched:
        patched.setattr(Intake, "settle_doubts_again", lambda _: False)
        assert at.run(rows).counts == {"created": 5, "in_doubt": 4}
    assert at.run(rows).counts == {"unchanged": 9}
    at.agree()


@pytest.mark.parametrize("at", [{"says": ["conditional"]}], indirect=True)
def test_a_resource_missing_from_a_lagging_identifier_search_is_found_among_those_of_its_patient(at):
    """LEDGER-01"""
    at.target.faults, at.target.found_after = ["", "", "", "lost_after"], 3
    rows = [payment(number) for number in range(9)]
    assert at.run(rows).counts == {"created": 8, "adopted": 1}
    assert keys(at) == [row[2] for row in rows]
    at.agree()


@CONDITIONAL
def test_something_else_under_the_key_is_a_reject(at):
    """LEDGER-15"""
    at.run([payment(number) for number in range(3)])
    at.target.stored[next(iter(at.target.stored))]["amount"] = {"value": 99, "currency": "USD"}
    at.ledger.close()
    lose_ledger(at.home)
    at.ledger = Ledger.open(at.home / "ledger.db")
    assert at.run([payment(number) for number in range(3)]).counts == {"adopted": 2, "refused": 1}


def task(number, owner):
    """A task of no patient."""
    body = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": f"Call {number}"}
    text = json.dumps(body | {"authoredOn": "2026-01-01T00:00:00Z", "owner": {"reference": f"Practitioner/{owner}"}})
    return (number + 1, 1, f"t{number}", f"task/t{number}", number, f"hash {number}", None, None, None, text)


@pytest.mark.parametrize("at", [{"says": []}], ids=["bare"], indirect=True)
def test_lost_tasks_without_a_patient_are_each_looked_for_at_their_owner(at, monkeypatch):
    """LEDGER-01: several at once, which an earlier run left in doubt."""
    at.follow("tasks")
    at.target.faults = ["lost_after"] * 4
    rows = [task(number, f"d{number}") for number in range(6)]
    with monkeypatch.context() as patched:
        patched.setattr(Intake, "settle_doubts_again", lambda _: False)
        assert at.run(rows, settling=0).counts["in_doubt"] == 4
    assert at.run(rows, settling=0).counts["adopted"] == 0
    assert len(at.target.stored) == 6
    at.agree()


@pytest.mark.alike
@pytest.mark.parametrize("known", [True, False], ids=["ours", "another"])
@pytest.mark.parametrize("way", WAYS)
def test_the_bundled_service_takes_rows_at_every_step(tmp_path, way, known):
    """TARGET-02: also where it is not known to be one, so that its promises are tried first."""
    with running(tmp_path, practice(tmp_path / "world", 5)) as service:
        work = Work(tmp_path, service)
        work.client = FhirClient(service.url, Credentials(token=service.headers["authorization"].split()[1]))
        says = work.client.capabilities()
        says = says._replace(
            batch=way == "batch", transaction=way == "transaction", store_id=says.store_id if known else None
        )

        def run(rows):
            with work.ledger.lease("urn:uuid:fake") as lease:
                return load(work.load(work.batch(rows), lease, says))

        rows = [payment(number, patient=f"p{number % 5}") for number in range(60)]
        rows[33] = payment(33, patient="nobody")
        assert run(rows).counts == {"created": 59, "refused": 1}
        (reason,) = work.table("reject_reason")
        assert reason["expression"] == "PaymentNotice.request"
        work.ledger.close()
        lose_ledger(work.home)
        work.ledger = Ledger.open(work.home / "ledger.db")
        assert run(rows).counts == {"adopted": 59, "refused": 1}
        found = whole_search(work.client.pages("PaymentNotice"), "PaymentNotice")
        assert sorted(body["identifier"][0]["value"] for body in found) == sorted(
            row[2] for row in rows if row[0] != 34
        )
        work.close()
