"""Exchanges that were recorded with HAPI FHIR 8.8.0: what its statement and its answers are taken for."""

import json

import httpx
import pytest

from pipelines.client.capabilities import capabilities_of
from pipelines.client.client import Credentials, FhirClient, Patience, conditional_bundle
from pipelines.client.replies import Refused, resources_of
from pipelines.client.steps import TRANSACTION, step_for
from tests.support.realdata import MISSING, REALDATA

RECORDED = REALDATA / "hapi" / "exchanges.ndjson"
pytestmark = pytest.mark.skipif(not RECORDED.exists(), reason=MISSING)


@pytest.fixture(scope="module")
def recorded():
    """The exchanges, by what they show."""
    exchanges = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return {each["what"]: each for each in exchanges}


def answered_as(exchange):
    """The client of a target that answers as recorded."""
    said = exchange["response"]
    headers = {name: value for name, value in (said.get("headers") or {}).items() if name == "location"}
    answer = httpx.Response(said["status"], headers=headers, json=said.get("body"))
    transport = httpx.MockTransport(lambda _: answer)
    return FhirClient("http://127.0.0.1:1", Credentials(token="t"), patience=Patience(1), transport=transport)


def transact(exchange):
    """The replies to the entries of a recorded transaction."""
    entries = exchange["request"]["body"]["entry"]
    bundle = conditional_bundle("Task", [(json.dumps(each["resource"]), '"identifier=a|b"') for each in entries])
    return answered_as(exchange).send_bundle(bundle, len(entries), "transaction")


def test_the_statement_leads_to_transactions(recorded):
    """TARGET-02"""
    found = capabilities_of(recorded["metadata, cut to what an importer reads"]["response"]["body"])
    assert [step_for(found, kind) for kind in ("Task", "PaymentNotice", "QuestionnaireResponse")] == [TRANSACTION] * 3
    assert (found.name, found.software, found.store_id) == ("HAPI FHIR Server", "8.8.0", None)


def test_a_transaction_tells_of_each_entry_what_was_made_and_what_was_there(recorded):
    """TARGET-02"""
    made = transact(recorded["transaction of conditional creates, none there"])
    assert [(each.kind, each.resource_id) for each in made] == [
        ("created", "237404"),
        ("created", "237405"),
        ("created", "237406"),
    ]
    some = transact(recorded["transaction of conditional creates, some there"])
    assert [each.kind for each in some] == ["existed", "existed", "created", "created"]


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("transaction, one entry names a patient who is not there", 400, "Patient/nobody not found"),
        ("transaction, the same condition twice", 400, "fullUrl not populated"),
        ("transaction, one condition matches two", 412, "matched 2 resources"),
    ],
)
def test_a_refused_transaction_tells_why(recorded, what, status, words):
    """TARGET-02"""
    with pytest.raises(Refused) as refused:
        transact(recorded[what])
    assert refused.value.reply.status == status
    assert words in (refused.value.reply.outcome or {})["diagnostics"]


@pytest.mark.parametrize(
    ("what", "kind"), [("conditional create, none there", "created"), ("conditional create, one there", "existed")]
)
def test_a_conditional_create_tells_whether_it_made_something(recorded, what, kind):
    """TARGET-03"""
    assert answered_as(recorded[what]).create("PaymentNotice", "{}", "identifier=a|b").kind == kind


def test_a_search_by_several_identifiers_finds_them(recorded):
    """TARGET-03"""
    page = answered_as(recorded["search by several identifiers"]).get("/Task?identifier=a|b,a|c")
    assert [body["identifier"][0]["value"] for body in resources_of(page, "Task")] == ["RUN-d0", "RUN-d1"]
