"""Public Python clients for FHIR at the R4 face, with nothing patched: fhirpy (sync and async) and fhirclient."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from fhirclient.models.bundle import Bundle
from fhirclient.models.fhirreference import FHIRReference
from fhirclient.models.task import Task, TaskInput
from fhirclient.server import FHIRNotFoundException
from fhirpy import AsyncFHIRClient, SyncFHIRClient
from fhirpy.base.exceptions import MultipleResourcesFound, OperationOutcome, ResourceNotFound

from tests.conftest import Running
from tests.support.fhir_clients import fhirclient_server


def new_task(label: str, description: str = "made by a client", **changed: Any) -> dict[str, Any]:
    return {
        "status": "requested",
        "intent": "unknown",
        "description": description,
        "requester": {"reference": "Practitioner/dr1"},
        "for": {"reference": "Patient/p1"},
        "input": [{"type": {"text": "label"}, "valueString": label}],
    } | changed


@pytest.fixture
def label() -> str:
    """A word by which a test finds its own tasks."""
    return uuid.uuid4().hex


# --- fhirpy ---------------------------------------------------------------------------------------


@pytest.fixture
def fhirpy(service: Running) -> SyncFHIRClient:
    return SyncFHIRClient(f"{service.url}/fhir", authorization=service.headers["authorization"])


def test_fhirpy_creates_reads_updates_and_refreshes(fhirpy: SyncFHIRClient, label: str) -> None:
    """EXTRA-R4-04, EXTRA-R4-02."""
    task = fhirpy.resource("Task", **new_task(label))
    task.save()
    assert task["meta"]["versionId"] == "1"
    read = fhirpy.reference("Task", task.id).to_resource()
    assert read.serialize() == task.serialize()
    read["status"] = "completed"
    read.update()
    assert (read["status"], read["meta"]["versionId"]) == ("completed", "2")
    assert task["status"] == "requested"
    task.refresh()
    assert task["status"] == "completed"
    task.refresh()
    assert task["meta"]["versionId"] == "2"


def test_fhirpy_creates_payments_and_responses(fhirpy: SyncFHIRClient) -> None:
    """EXTRA-R4-04: a response names its questionnaire by the `url` that the questionnaire has."""
    unused = {"display": "Unused"}
    notice = fhirpy.resource("PaymentNotice", status="active", created="2024-03-05", payment=unused, recipient=unused)
    notice["request"], notice["amount"] = fhirpy.reference("Patient", "p7"), {"value": 1.25, "currency": "USD"}
    notice.save()
    assert notice.get_by_path("paymentStatus.coding.0.code") == "paid"

    questionnaire = fhirpy.resources("Questionnaire").search(name="intake", status="active").get()
    item = {"linkId": "remarks", "answer": [{"valueString": "fine"}]}
    response = fhirpy.resource("QuestionnaireResponse", status="completed", item=[item])
    response["questionnaire"], response["subject"] = questionnaire["url"], fhirpy.reference("Patient", "p1")
    response.save()
    assert response.id
    response["status"] = "entered-in-error"
    response.save()
    assert response["meta"]["versionId"] == "2"


def test_fhirpy_counts_and_follows_all_pages(fhirpy: SyncFHIRClient, label: str) -> None:
    """EXTRA-R4-04, EXTRA-R4-03."""
    for number in range(7):
        fhirpy.resource("Task", **new_task(label, f"number {number}")).save()
    found = fhirpy.resources("Task").search(label=label)
    assert found.count() == 7
    assert [task["description"] for task in found.limit(3)] == [f"number {number}" for number in range(7)]
    (newest,) = found.sort("-_lastUpdated").elements("description").limit(1).fetch()
    assert newest["description"] == "number 6"
    assert "requester" not in newest
    included = found.include("Task", "patient").limit(2).fetch_raw()["entry"]
    assert [(one.search.mode, one.resource.resourceType) for one in included] == [
        ("match", "Task"),
        ("match", "Task"),
        ("include", "Patient"),
    ]


def test_fhirpy_creates_once_by_an_identifier(fhirpy: SyncFHIRClient, label: str) -> None:
    """EXTRA-R4-04, EXTRA-COND-02."""
    task = fhirpy.resource("Task", **new_task(label), identifier=[{"system": "urn:clients", "value": label}])
    search = fhirpy.resources("Task").search(identifier=f"urn:clients|{label}")
    made, is_new = search.get_or_create(task)
    again, is_new_again = search.get_or_create(task)
    assert (is_new, is_new_again, made.id == again.id) == (True, False, True)


def test_fhirpy_meets_its_own_exceptions(fhirpy: SyncFHIRClient, service: Running, label: str) -> None:
    """EXTRA-R4-04: 404, 412 (which fhirpy calls so) and 422."""
    with pytest.raises(ResourceNotFound, match="Unknown Task resource 'nothing'"):
        fhirpy.get("Task", "nothing")
    task = fhirpy.resource("Task", **new_task(label))
    task.save()
    stale = SyncFHIRClient(f"{service.url}/fhir", service.headers["authorization"], extra_headers={"If-Match": 'W/"7"'})
    with pytest.raises(MultipleResourcesFound, match="Resource updated since"):
        stale.resource("Task", **new_task(label), id=task.id).save()
    with pytest.raises(OperationOutcome) as refused:
        fhirpy.resource("Task", **new_task(label, intent="order")).save()
    assert refused.value.resource["issue"][0]["code"] == "business-rule"
    assert not fhirpy.resource("Task", **new_task(label, status="draft")).is_valid()


def test_fhirpy_works_side_by_side(service: Running, label: str) -> None:
    """EXTRA-R4-04: the asynchronous client."""

    async def work() -> None:
        client = AsyncFHIRClient(f"{service.url}/fhir", authorization=service.headers["authorization"])
        tasks = [client.resource("Task", **new_task(label, f"number {number}")) for number in range(5)]
        await asyncio.gather(*(task.save() for task in tasks))
        found = client.resources("Task").search(label=label).limit(2)
        assert {task.id async for task in found} == {task.id for task in tasks}
        assert await found.count() == 5
        tasks[0]["status"] = "completed"
        await tasks[0].update()
        assert (await client.get("Task", tasks[0].id))["status"] == "completed"
        with pytest.raises(ResourceNotFound):
            await client.get("Task", "nothing")
        with pytest.raises(OperationOutcome):
            await client.resource("Task", **new_task(label, status="draft")).save()
        stale = AsyncFHIRClient(
            f"{service.url}/fhir", service.headers["authorization"], extra_headers={"If-Match": 'W/"7"'}
        )
        with pytest.raises(MultipleResourcesFound):
            await stale.resource("Task", **new_task(label), id=tasks[0].id).save()

    asyncio.run(work())


# --- fhirclient -----------------------------------------------------------------------------------


@pytest.fixture
def fhirclient(service: Running) -> Iterator[Any]:
    server = fhirclient_server(f"{service.url}/fhir", service.headers["authorization"])
    yield server
    server.session.close()


def a_task(label: str, description: str = "made by fhirclient") -> Any:
    task = Task()
    task.status, task.intent, task.description = "requested", "unknown", description
    task.requester, task.for_fhir = (FHIRReference({"reference": at}) for at in ("Practitioner/dr1", "Patient/p1"))
    task.input = [TaskInput({"type": {"text": "label"}, "valueString": label})]
    return task


def test_fhirclient_creates_reads_and_updates(fhirclient: Any, label: str) -> None:
    """EXTRA-R4-04, EXTRA-R4-02: its strict models take every answer."""
    made = Task(a_task(label).create(fhirclient))
    read = Task.read(made.id, fhirclient)
    assert read.as_json() == made.as_json()
    read.status = "completed"
    changed = Task(read.update(fhirclient))
    assert (changed.status, changed.meta.versionId) == ("completed", "2")


def test_fhirclient_follows_all_pages(fhirclient: Any, label: str) -> None:
    """EXTRA-R4-04, EXTRA-R4-02."""
    for number in range(5):
        a_task(label, f"number {number}").create(fhirclient)
    found = Task.where({"label": label, "_count": "2", "_total": "accurate", "_sort": "_lastUpdated"})
    pages = list(found.perform_iter(fhirclient))
    assert [page.total for page in pages] == [5, 5, 5]
    assert [task.description for task in found.perform_resources_iter(fhirclient)] == [f"number {n}" for n in range(5)]
    counted = Bundle.read_from(f"Task?label={label}&_summary=count", fhirclient)
    assert (counted.total, counted.entry) == (5, None)


def test_fhirclient_meets_its_exceptions(fhirclient: Any, label: str) -> None:
    """EXTRA-R4-04: a 404 has a class of its own, 412 and 422 are those of `requests`."""
    with pytest.raises(FHIRNotFoundException):
        Task.read("nothing", fhirclient)
    draft = a_task(label)
    draft.status = "draft"
    with pytest.raises(requests.HTTPError, match="422"):
        draft.create(fhirclient)
    made = Task(a_task(label).create(fhirclient))
    fhirclient.session.headers["If-Match"] = 'W/"7"'
    with pytest.raises(requests.HTTPError, match="412"):
        made.update(fhirclient)


def test_fhirclient_reads_the_statement_of_the_face(service: Running) -> None:
    """EXTRA-R4-01: it reads the statement first, when it starts without a token."""
    server = fhirclient_server(f"{service.url}/fhir", service.headers["authorization"])
    assert server.capabilityStatement.implementation.url == f"{service.url}/fhir"
    server.session.close()
