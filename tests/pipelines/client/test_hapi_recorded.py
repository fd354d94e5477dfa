"""Exchanges that were recorded with HAPI FHIR 8.8.0: what its statement and its answers are taken for.

Those of the project (`make record-hapi`) are always there; those of the public data sets where these are.
"""

import json

import httpx
import pytest

from pipelines.client.capabilities import capabilities_of
from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.profiles import PLAIN, profile_for
from pipelines.client.replies import RequestRefused, next_link, resources_of, total_of
from pipelines.client.steps import TRANSACTION, step_for
from pipelines.client.tokens import Credentials
from pipelines.client.whole import PageTurning
from tests.hapi.record import EXCHANGES
from tests.support.realdata import MISSING, REALDATA

PUBLIC = REALDATA / "hapi" / "exchanges.ndjson"
SOURCES = [
    pytest.param(EXCHANGES, id="ours"),
    pytest.param(PUBLIC, id="public", marks=pytest.mark.skipif(not PUBLIC.exists(), reason=MISSING)),
]


@pytest.fixture(scope="module", params=SOURCES)
def recorded(request):
    """The exchanges, by what they show."""
    return by_what(request.param)


def by_what(path):
    exchanges = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {each["what"]: each for each in exchanges}


def answered_as(exchange, profile=PLAIN):
    """The client of a target that answers as recorded."""
    said = exchange["response"]
    headers = {name: value for name, value in (said.get("headers") or {}).items() if name == "location"}
    answer = httpx.Response(said["status"], headers=headers, json=said.get("body"))
    transport = httpx.MockTransport(lambda _: answer)
    return FhirClient(
        "http://127.0.0.1:1", Credentials(token="t"), patience=RetryPauses(1), transport=transport, profile=profile
    )


def transact(exchange):
    """The replies to the entries of a recorded transaction."""
    entries = exchange["request"]["body"]["entry"]
    creates = [(json.dumps(each["resource"]), '"identifier=a|b"') for each in entries]
    return answered_as(exchange).create_all("Task", creates, "transaction")


def test_the_statement_leads_to_transactions(recorded):
    """TARGET-02"""
    found = capabilities_of(recorded["metadata, cut to what an importer reads"]["response"]["body"])
    assert [step_for(found, kind) for kind in ("Task", "PaymentNotice", "QuestionnaireResponse")] == [TRANSACTION] * 3
    assert (found.name, found.software, found.store_id) == ("HAPI FHIR Server", "8.8.0", None)


def test_the_answer_to_a_transaction_distinguishes_created_entries_from_existing_ones(recorded):
    """TARGET-02"""
    whole = recorded["transaction of conditional creates, none there"]
    ids = [each["response"]["location"].split("/")[1] for each in whole["response"]["body"]["entry"]]
    made = transact(whole)
    assert [(each.kind, each.resource_id) for each in made] == [("created", name) for name in ids]
    assert len(set(ids)) == 3
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
def test_the_refusal_of_a_transaction_contains_its_status_and_reason(recorded, what, status, words):
    """TARGET-02"""
    with pytest.raises(RequestRefused) as refused:
        transact(recorded[what])
    assert refused.value.reply.status == status
    assert words in (refused.value.reply.outcome or {})["diagnostics"]


@pytest.mark.parametrize(
    ("what", "kind"), [("conditional create, none there", "created"), ("conditional create, one there", "existed")]
)
def test_the_answer_to_a_conditional_create_says_whether_it_created_a_resource(recorded, what, kind):
    """TARGET-03"""
    resource_type = recorded[what]["request"]["path"].strip("/")
    assert answered_as(recorded[what]).create(resource_type, "{}", "identifier=a|b").kind == kind


def test_a_search_by_several_identifiers_finds_them(recorded):
    """TARGET-03"""
    exchange = recorded["search by several identifiers"]
    asked = exchange["request"].get("path") or exchange["request"]["url"]
    page = answered_as(exchange).get("/Task?identifier=a|b,a|c")
    found = [body["identifier"][0]["value"] for body in resources_of(page, "Task")]
    assert len(found) == 2
    assert all(f"|{value}" in asked for value in found)


def test_a_search_by_identifier_system_alone_gives_counted_pages():
    """CLI-CMD-17: several pages can be asked for at once, by the offset that its links name."""
    ours = by_what(EXCHANGES)
    first = ours["search by a system alone"]["response"]["body"]
    total = total_of(first) or 0
    assert total > 4
    link = "BASE" + ours["its next page"]["request"]["path"]
    assert next_link(first) == link
    turning = PageTurning(profile_for("HAPI FHIR Server").offset, "Task")
    addresses = list(turning.others(first))
    assert addresses[0] == turning.turn(first) == link.replace("offset=2", "offset=1")
    assert len(addresses) == total - 2, "each begins with the last of the page before"
    assert resources_of(ours["its next page"]["response"]["body"], "Task")


def test_elements_and_the_last_change_are_searched_for():
    """CLI-CMD-17"""
    [body] = resources_of(by_what(EXCHANGES)["search by the last change, cut to elements"]["response"]["body"], "Task")
    assert "for" in body
    assert "description" not in body
    assert total_of(by_what(EXCHANGES)["search without a total"]["response"]["body"]) is None


def test_an_update_with_an_old_version_is_a_conflict():
    """TARGET-04"""
    client = answered_as(by_what(EXCHANGES)["update with an old version"], profile_for("HAPI FHIR Server"))
    with pytest.raises(RequestRefused) as refused:
        client.update("Task", "a", "{}")
    assert refused.value.reply.status == 412


def test_a_put_creates_although_the_statement_does_not_say_so():
    """TARGET-06"""
    ours = by_what(EXCHANGES)
    found = capabilities_of(ours["metadata, cut to what an importer reads"]["response"]["body"])
    assert {"Patient", "Claim", "Questionnaire"} <= found.puts
    assert {"Task", "PaymentNotice", "QuestionnaireResponse"} <= found.dated & found.identified
    assert answered_as(ours["put under an id that is not there"]).update("Patient", "a", "{}").status == 201
