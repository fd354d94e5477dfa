"""Every response body parses in fhir.resources R4B, the independent referee."""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import httpx
import pytest

from tests.conftest import Running, running
from tests.spec.casebook import Case, Scenario, cases, from_json, scenarios
from tests.spec.test_http import JSON, Caller, created, id_in, keep
from tests.support import loopback

ACCEPTED = [case for case in cases() if case.expected.outcome is None and case.read]
# What a patient owes after other cases is not known here: those run in any order, or by another process.
REFUSED = [case for case in cases() if case.expected.outcome and not case.balances]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of these tests alone: they spend what patients owe."""
    with running(tmp_path_factory.mktemp("parses")) as found:
        yield found


def parses(response: httpx.Response) -> None:
    """The body is a resource of R4 and, serialised again, the same resource."""
    body = from_json(response.content)
    name = body["resourceType"]
    model: Any = getattr(import_module(f"fhir.resources.R4B.{name.lower()}"), name)
    again = json.loads(model.model_validate_json(response.content).model_dump_json())
    assert set(again) == set(body)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.id)
def test_what_was_accepted_reads_as_r4(service: Running, case: Case) -> None:
    """COMMON-53, TASK-02, PAY-02, QR-02: a read of the resource and a search for it."""
    resource_id = stored(service, case)
    parses(service.client.get(f"/{case.resource}/{resource_id}"))
    parses(service.client.get(f"/{case.resource}?_id={resource_id}"))


def stored(service: Running, case: Case) -> str:
    """The id of the resource that an accepted case leaves."""
    if case.interaction == "update":
        resource_id = created(service, case)
        body = case.text(service.url, resource_id)
        response = service.client.put(f"/{case.resource}/{resource_id}", content=body.encode(), headers=JSON)
        assert response.status_code == 200, response.text
        return resource_id
    response = service.client.post(f"/{case.resource}", content=case.text(service.url).encode(), headers=JSON)
    assert response.status_code == 201, response.text
    return id_in(response, service.url, case.resource)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_outcomes_are_r4(service: Running, case: Case) -> None:
    """ERR-01, ERR-02: the outcome of every refused case."""
    resource_id = created(service, case) if case.interaction == "update" else ""
    path = f"/{case.resource}/{resource_id}".rstrip("/")
    method = "PUT" if resource_id else "POST"
    body = case.text(service.url, resource_id).encode()
    parses(service.client.request(method, path, content=body, headers=JSON))


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.id)
def test_what_scenarios_are_answered_is_r4(service: Running, scenario: Scenario) -> None:
    """COMMON-01, COMMON-53, QNR-02, DR-03, BUNDLE-01, EXTRA-01: every resource that a scenario is answered with."""
    caller = Caller(service, service.service.auth.add_client("referee"))
    for step in scenario.steps:
        response = caller.send(step)
        keep(step, response, caller)
        if b'"resourceType"' in response.content:
            parses(response)


@pytest.mark.parametrize(
    "resource", ["Task", "PaymentNotice", "Questionnaire", "QuestionnaireResponse", "DiagnosticReport"]
)
def test_every_page_of_every_type_is_r4(service: Running, resource: str) -> None:
    """BUNDLE-12, DR-02: whole pages of all that is stored."""
    url = f"/{resource}?_count=100"
    while url:
        response = service.client.get(url)
        parses(response)
        links = {link["relation"]: link["url"] for link in response.json()["link"]}
        url = links.get("next", "")


def test_the_capability_statement_is_r4(service: Running) -> None:
    """EXTRA-01, COMMON-55: and it says which version it is."""
    response = loopback.get(f"{service.url}/metadata")
    parses(response)
    assert response.json()["fhirVersion"] == "4.0.1"
