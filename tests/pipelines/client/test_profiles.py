"""Profiles of targets: how one is chosen, what each of its keys does, and what is wrong in a file is one sentence."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pipelines.client.client import AsOf, FhirClient
from pipelines.client.comparison import NOT_IN_FORCE
from pipelines.client.pace import RetryPauses
from pipelines.client.profiles import Profile, member, profile_for
from pipelines.client.replies import RequestRefused
from pipelines.client.tokens import Credentials
from pipelines.home.exits import BadSetting
from pipelines.loading.changes import Changes
from pipelines.loading.ownership import KnownResource, Owner
from pipelines.loading.row import Identity
from tests.support.exports import PAYMENTS, QUESTIONS, payments, put, tasks
from tests.support.fake_answers import Said, outcome
from tests.support.ledgers import lose_ledger

SAYS = ["transaction", "conditional", "identifier"]
DOLLARS, EURO = {"value": 80, "currency": "USD"}, {"value": 80, "currency": "EUR"}
URL = "http://example.org/fhir/Questionnaire/mood"


@pytest.fixture
def other(target):
    """A target of another make."""
    target.additions, target.promised, target.software = False, SAYS, "Other"
    return target


def profile(home, text):
    (home / "targets").mkdir(exist_ok=True)
    (home / "targets" / "other.toml").write_text(f'software = "Other"\n{text}')


def owe(target, patient, dollars, name, **more):
    """A Claim of a patient."""
    total = {"total": {"value": dollars, "currency": "USD"}}
    claim = {"resourceType": "Claim", "id": name, "status": "active", "patient": {"reference": f"Patient/{patient}"}}
    target.stored[name] = claim | total | more


def test_the_software_of_the_statement_chooses_the_profile_and_a_users_file_wins(tmp_path):
    """TARGET-04"""
    assert profile_for("HAPI FHIR Server").name == "hapi"
    assert profile_for("Chartferry fhir-service").name == "bundled"
    assert [profile_for(name).name for name in (None, "", "Another")] == ["interface"] * 3
    (tmp_path / "ours.toml").write_text('software = "HAPI FHIR Server"\nbalances = true\n')
    assert (
        profile_for("HAPI FHIR Server", tmp_path).name,
        profile_for("HAPI FHIR Server", tmp_path).balances,
    ) == (
        "ours",
        True,
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("balances = 3.5\n", "other.toml: balances: Input should be a valid boolean"),
        ('name = "hapi"\n', "other.toml: name: it is that of the file"),
        ("colour = 1\n", "other.toml: colour: Extra inputs are not permitted"),
        ("= 1\n", "other.toml: the file is not valid TOML"),
        ("conflict = 200\n", "other.toml: conflict: Input should be greater than or equal to 400"),
    ],
)
def test_a_mistake_in_a_profile_is_reported_in_one_sentence(home, other, chartferry, text, why):
    """TARGET-04"""
    (home / "targets").mkdir()
    (home / "targets" / "other.toml").write_text(text)
    with pytest.raises(BadSetting):
        profile_for("Other", home / "targets")
    code, out, err = chartferry("target")
    assert (code, out) == (6, "")
    assert err.startswith(f"chartferry: {why}")


def test_the_profile_is_shown(home, other, chartferry):
    """TARGET-01, TARGET-04"""
    profile(home, "balances = true\n")
    out = chartferry("target")[1]
    assert "profile: other" in out
    assert "balances: computed from the target's Claims and PaymentNotices before a payment is sent" in out
    assert json.loads(chartferry("target", "--json")[1])["balances"] is True


def test_payments_above_the_balance_are_rejects_in_the_order_of_the_lane(home, other, asked):
    """TARGET-04: 100.00 owed, by two Claims; what is taken off in this file counts for the rows behind it."""
    profile(home, "balances = true\n")
    owe(other, "p1", 60, "c1")
    owe(other, "p1", 0, "c2", total=None, item=[{"unitPrice": {"value": 20}, "quantity": {"value": 2}}])
    del other.stored["c2"]["total"]
    owe(other, "p1", 500, "c3", status="cancelled")
    payments(home, ("k1", "p1", "60.00"), ("k2", "p1", "40.01"), ("k3", "p1", "40.00"), ("k4", "p2", "0.01"))
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (2, 2)
    assert sorted(body["amount"]["value"] for body in other.of("PaymentNotice")) == [40.0, 60.0]
    owe(other, "p1", 1, "c4")
    payments(home, ("k5", "p1", "1.01"), ("k6", "p1", "1.00"), name="payments-b.csv")
    assert asked("import")["totals"]["created"] == 1
    owe(other, "p2", 1, "c5")
    assert asked("rejects", "retry")["totals"]["created"] == 1
    assert asked("import")["totals"].get("created", 0) == 0
    assert len(other.of("PaymentNotice")) == 4


def test_a_claim_with_amounts_that_are_none_or_no_dollars_charges_nothing(home, other, asked):
    """TARGET-04: the bundled service refuses such a Claim. A target's odd numbers end no load."""
    profile(home, "balances = true\n")
    values: list[Any] = ["NaN", "Infinity", "1e999999", 1e300, {}]
    odd: list[dict[str, Any]] = [
        {"total": {"value": 80, "currency": "EUR"}},
        {"item": [{"net": {"value": 9, "currency": "CHF"}}], "total": {"value": 9}},
        *({"total": {"value": value}} for value in values),
        *({"total": None, "item": items} for items in (None, 7, "items", {"net": {"value": 7}})),
        {"total": 7, "item": [{"unitPrice": 3, "quantity": 2}, {"unitPrice": {"value": 5}, "factor": "NaN"}, 4]},
    ]
    for number, more in enumerate(odd):
        owe(other, "p1", 0, f"c{number}", **more)
    owe(other, "p1", 2, "own")
    payments(home, ("k1", "p1", "2.01"), ("k2", "p1", "2.00"))
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (1, 1)


@pytest.mark.parametrize(
    "notice", [{"status": "active", "amount": EURO}, *({"status": each, "amount": DOLLARS} for each in NOT_IN_FORCE)]
)
def test_a_payment_in_another_currency_or_not_in_force_does_not_reduce_the_balance(home, other, asked, notice):
    """TARGET-04: a Claim in another currency, or not in force, charges nothing."""
    profile(home, "balances = true\n")
    owe(other, "p1", 100, "c1")
    owe(other, "p1", 80, "c2", total={"value": 80, "currency": "EUR"})
    paid = {"resourceType": "PaymentNotice", "id": "n1", "request": {"reference": "Patient/p1"}}
    other.stored["n1"] = paid | notice
    payments(home, ("k1", "p1", "100.00"), ("k2", "p1", "0.01"))
    asked("import")
    assert [each["amount"]["value"] for each in other.of("PaymentNotice")] == [80, 100.0]


def test_an_adopted_payment_is_not_deducted_from_the_balance_a_second_time(home, other, asked):
    """TARGET-04, LEDGER-01: the home has lost its ledger and its batches."""
    profile(home, "balances = true\n")
    owe(other, "p1", 10, "c1")
    payments(home, ("k1", "p1", "8.00"))
    asked("import")
    lose_ledger(home)
    shutil.rmtree(home / "batches")
    payments(home, ("k1", "p1", "8.00"), ("k2", "p1", "2.00"), ("k3", "p1", "0.01"))
    found = asked("import")["totals"]
    assert (found["adopted"], found["created"], found["rejected"]) == (1, 1, 1)
    assert len(other.of("PaymentNotice")) == 2


def test_a_copayment_may_exceed_the_balance_and_is_deducted(home, other, asked):
    """TARGET-04"""
    profile(home, "balances = true\n")
    owe(other, "p1", 10, "c1")
    put(home, "payments.csv", PAYMENTS + "k1,p1,15.00,2026-03-01,c1\nk2,p1,0.01,2026-03-02,\n")
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (1, 1)


def test_a_payment_that_a_search_does_not_show_yet_counts(home, other, asked, monkeypatch):
    """TARGET-04"""
    profile(home, "balances = true\n")
    owe(other, "p1", 10, "c1")
    payments(home, ("k1", "p1", "8.00"))
    asked("import")
    whole = other.found
    monkeypatch.setattr(other, "found", lambda kind, query: whole(kind, query) if kind == "Claim" else [])
    payments(home, ("k2", "p1", "8.00"), name="payments-b.csv")
    assert asked("import")["totals"]["rejected"] == 1


def test_a_payment_that_the_target_refuses_is_no_part_of_the_balance(home, other, asked):
    """TARGET-04: what was above only because of it goes in the same run, in its order; the rest is set aside."""
    profile(home, "balances = true\n")
    owe(other, "p1", 100, "c1")
    owe(other, "p2", 5, "c2")
    other.refuse = lambda body: body.get("amount", {}).get("value") == 90
    rows = [("k1", "p1", "90.00"), ("k2", "p1", "60.00"), ("k3", "p1", "40.00"), ("k4", "p1", "10.01")]
    payments(home, *rows, ("k5", "p2", "5.01"))
    found = asked("import")["totals"]
    assert (found["created"], found["refused"], found["rejected"]) == (2, 1, 2)
    assert sorted(body["amount"]["value"] for body in other.of("PaymentNotice")) == [40.0, 60.0]
    assert asked("import")["totals"].get("created", 0) == 0


@pytest.mark.alike
@pytest.mark.parametrize("says", [SAYS, ["conditional", "identifier"]], ids=["transactions", "one by one"])
def test_a_smaller_payment_waits_behind_a_larger_one_that_waits_for_others(home, other, asked, says):
    """TARGET-04: as at a target that keeps balances. Otherwise it would take the money that the larger one needs."""
    profile(home, "balances = true\n")
    other.promised = says
    owe(other, "p1", 100, "c1")
    other.refuse = lambda body: body.get("amount", {}).get("value") == 90
    payments(home, ("k1", "p1", "90.00"), ("k2", "p1", "60.00"), ("k3", "p1", "40.00"), ("k4", "p1", "10.00"))
    found = asked("import")["totals"]
    assert (found["created"], found["refused"], found["rejected"]) == (2, 1, 1)
    assert [body["identifier"][0]["value"] for body in other.of("PaymentNotice")] == ["k2", "k3"]
    assert asked("import")["totals"].get("created", 0) == 0


@pytest.mark.long
def test_a_run_that_goes_on_and_the_next_file_find_the_balances_of_a_run_that_was_not_stopped(home, other, asked):
    """TARGET-04: they are read anew, with what the ledger knows as made; what has no outcome yet holds its lane."""
    profile(home, "balances = true\n")
    owe(other, "p1", 10, "c1")
    payments(home, ("k1", "p1", "4.00"), ("k2", "p1", "3.00"), ("k3", "p1", "4.00"), ("k4", "p1", "3.00"))
    other.faults = ["", *[Said(403, None)] * 50]
    stopped = asked("import")
    other.faults = []
    assert (stopped["exit_code"], stopped["totals"]["created"]) == (6, 1)
    assert stopped["totals"].get("rejected", 0) == 0, "nothing is above a balance that is not known to its end"
    payments(home, ("k5", "p1", "3.01"), ("k6", "p1", "3.00"), name="payments-b.csv")
    asked("import")
    made = sorted(body["identifier"][0]["value"] for body in other.of("PaymentNotice"))
    assert made == ["k1", "k2", "k4"]
    assert sum(body["amount"]["value"] for body in other.of("PaymentNotice")) == 10


def test_nothing_is_sent_if_the_balances_cannot_be_read(home, other, asked):
    """TARGET-04"""
    profile(home, "balances = true\n")
    payments(home, ("k1", "p1", "8.00"))
    other.refused_parameters = {"patient"}
    found = asked("import")
    assert (found["exit_code"], other.writes) == (6, 0)
    assert "Claim could not be read for the balances (HTTP 400)" in json.dumps(found)
    other.refused_parameters = set()
    owe(other, "p1", 8, "c1")
    assert asked("import")["totals"]["created"] == 1


def test_a_profile_fills_the_elements_that_the_interface_leaves_empty(home, other, asked):
    """TARGET-04"""
    profile(home, '[elements.PaymentNotice]\npayment = { display = "till" }\nrecipient = { display = "practice" }\n')
    payments(home, ("k1", "p1", "8.00"))
    asked("import")
    (made,) = other.of("PaymentNotice")
    assert (made["payment"], made["recipient"]) == ({"display": "till"}, {"display": "practice"})
    assert asked("verify")["differences"] == []


def test_no_element_without_content_is_sent_to_a_server_that_declares_more_than_the_interface(home, other, asked):
    """TARGET-04: what was sent otherwise before is the same payment, whichever file has it."""
    profile(home, "[elements.PaymentNotice]\npayment = {}\n")
    payments(home, ("k1", "p1", "8.00"))
    asked("import")
    (home / "targets" / "other.toml").unlink()
    payments(home, ("k1", "p1", "8.00"), ("k2", "p1", "3.00"))
    found = asked("import")["totals"]
    assert (found["unchanged"], found["created"]) == (1, 1)
    made = {body["identifier"][0]["value"]: (body["payment"], body["recipient"]) for body in other.of("PaymentNotice")}
    unused = {"display": "Unused"}
    assert made == {"k1": ({}, unused), "k2": (unused, unused)}
    assert asked("verify")["differences"] == []


def test_bundles_have_as_many_rows_as_the_profile_says(home, other, asked):
    """TARGET-04"""
    profile(home, "rows_a_bundle = 7\n")
    payments(home, *((f"k{number}", "p1", "8.00") for number in range(30)))
    assert asked("import")["totals"]["created"] == 30
    assert max(other.sizes) == 7
    assert len(other.of("PaymentNotice")) == 30


def test_a_questionnaire_is_named_by_its_canonical_url_where_it_has_one(home, other, asked):
    """TARGET-05"""
    other.stored["q1"] = QUESTIONS | {"url": URL}
    other.stored["q2"] = QUESTIONS | {
        "id": "q2",
        "name": "plain",
        "code": [{"system": "http://loinc.org", "code": "2"}],
    }
    rows = f'r1,p1,q1,1,words with ""questionnaire"":\nr2,p1,{URL},1,a\nr3,p1,plain,1,b\n'
    put(
        home,
        "answers.csv",
        "response_id,patient_id,questionnaire,question,answer_text\n"
        + rows.replace('words with ""questionnaire"":', '"words with ""questionnaire"":"'),
    )
    assert asked("import")["totals"]["created"] == 3
    made = {body["identifier"]["value"]: body["questionnaire"] for body in other.of("QuestionnaireResponse")}
    assert made == {"r1": URL, "r2": URL, "r3": f"{other.url}/Questionnaire/q2"}
    assert asked("verify")["differences"] == []
    assert asked("import")["totals"].get("created", 0) == 0


def test_an_update_names_the_version_that_was_read_and_a_conflict_has_the_status_of_the_profile(other):
    """TARGET-04"""
    other.conflict = 409
    other.stored["t1"] = {"resourceType": "Task", "id": "t1", "status": "requested", "description": "call"}
    patience, profile = RetryPauses(sleep=lambda _: None), Profile(conflict=409)
    client = FhirClient(other.url, Credentials(token="fixed"), patience=patience, profile=profile)
    with pytest.raises(RequestRefused) as refused:
        client.update("Task", "t1", "{}", AsOf(None, 'W/"old"'))
    assert refused.value.reply.status == 412
    changes = Changes(client, lambda: None, Owner(Identity("s", "Task"), False))
    body = json.dumps({"resourceType": "Task", "description": "call twice"})
    with ThreadPoolExecutor(1) as pool:
        [done] = changes.update([(KnownResource("t1", "k1", ()), body)], None, pool)
    assert done.result.state == "updated"
    assert other.stored["t1"]["description"] == "call twice"
    client.close()


def test_an_element_of_a_profile_is_written_in_the_json_form_of_bodies():
    assert member("payment", {"display": "Kasse ä"}) == '"payment":{"display":"Kasse ä"}'


@pytest.mark.alike
@pytest.mark.parametrize("says", [["identifier"], ["conditional", "identifier"], SAYS])
@pytest.mark.parametrize("named", [False, True], ids=["no profile", "a profile"])
def test_a_server_of_another_make_that_says_it_is_busy_may_have_made_the_row(home, other, asked, says, named):
    """LEDGER-01, LEDGER-11: nothing of it goes again before it was looked for, unless a profile says that nothing is
    done then.
    """
    other.promised = says
    if named:
        profile(home, "not_done = [503]")
    payments(home, *((f"k{number}", f"p{number}", f"{number}.00") for number in range(1, 4)))
    other.faults = [Said(503, outcome("transient"))._replace(done=not named)]
    found = [asked("import") for _ in range(3)][-1]
    assert found["totals"].get("in_doubt", 0) == 0, found
    assert len(other.of("PaymentNotice")) == 3
    assert asked("verify")["exit_code"] == 0


@pytest.mark.alike
@pytest.mark.parametrize("fault", ["lost_before", "lost_after"])
@pytest.mark.parametrize("known", [False, True], ids=["the first rows", "later rows"])
def test_a_server_that_keeps_no_identifier_is_not_taken_at_its_word_that_a_row_is_absent(
    home, other, asked, monkeypatch, fault, known
):
    """LEDGER-01, LEDGER-06: what is known to be there is asked for too; where its search does not show that either, or
    nothing is known yet, the row is looked up by content.
    """
    other.promised, other.drops = ["identifier"], {"identifier"}
    if known:
        tasks(home, "k1", "k2")
        assert asked("import")["totals"]["created"] == 2
    tasks(home, "k3", "k1", "k2")
    other.faults = [fault]
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    assert [asked("import") for _ in range(3)][-1]["exit_code"] == 0
    assert sorted(body["description"] for body in other.of("Task")) == ["call k1", "call k2", "call k3"]
