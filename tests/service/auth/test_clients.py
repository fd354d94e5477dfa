"""Public Python clients for FHIR at the interface itself: fhirpy and fhirclient read, search, page and create.

The interface answers `null` to a write, and its links are relative. `test_face_clients.py` has them at the R4 face.
"""

import asyncio
import uuid
from decimal import Decimal
from typing import Any

import pytest
from fhirclient.client import FHIRClient
from fhirclient.models.annotation import Annotation
from fhirclient.models.coding import Coding
from fhirclient.models.diagnosticreport import DiagnosticReport
from fhirclient.models.fhirdatetime import FHIRDateTime
from fhirclient.models.fhirreference import FHIRReference
from fhirclient.models.money import Money
from fhirclient.models.paymentnotice import PaymentNotice
from fhirclient.models.period import Period
from fhirclient.models.questionnaire import Questionnaire
from fhirclient.models.questionnaireresponse import (
    QuestionnaireResponse,
    QuestionnaireResponseItem,
    QuestionnaireResponseItemAnswer,
)
from fhirclient.models.task import Task, TaskRestriction
from fhirclient.server import FHIRNotFoundException, FHIRUnauthorizedException
from fhirpy import AsyncFHIRClient, SyncFHIRClient
from fhirpy.base.exceptions import AuthorizationError, OperationOutcome, ResourceNotFound
from fhirpy.base.searchset import Raw

from fhir_service.interface.registry import RESOURCES
from tests.support.fhir_clients import fhirclient_server


def new_task(description) -> dict[str, Any]:
    return {
        "status": "requested",
        "intent": "unknown",
        "description": description,
        "requester": {"reference": "Practitioner/dr1"},
    }


# --- fhirpy ---------------------------------------------------------------------------------------


@pytest.fixture
def fhirpy(service):
    return SyncFHIRClient(service.url, authorization=service.headers["authorization"])


def test_fhirpy_reads_every_type(fhirpy):
    questionnaire = fhirpy.reference("Questionnaire", "q-intake").to_resource()
    assert (questionnaire["name"], questionnaire.get_by_path("item.0.code.0.code")) == ("intake", "44250-9")
    assert fhirpy.get("DiagnosticReport", "R.8-Upper")["subject"] == {
        "reference": "Patient/P.4-Upper",
        "type": "Patient",
    }
    with pytest.raises(ResourceNotFound, match="Unknown Task resource 'nothing'"):
        fhirpy.get("Task", "nothing")


def test_fhirpy_creates_each_type_and_finds_what_it_created(fhirpy, service):
    """A create answers null, so the resource has no id until a search finds it. fhirpy leaves empty objects out."""
    label = uuid.uuid4().hex
    task = fhirpy.resource("Task", **new_task("made by fhirpy"))
    task["input"] = [{"type": {"text": "label"}, "valueString": label}]
    task["for"] = fhirpy.reference("Patient", "p1")
    task.save()
    (found,) = fhirpy.resources("Task").search(label=label, patient=fhirpy.reference("Patient", "p1")).fetch()
    assert (found["description"], found["for"]["reference"]) == ("made by fhirpy", "Patient/p1")

    before = fhirpy.resources("PaymentNotice").search(request="Patient/p7").fetch_raw()["total"]
    notice: dict[str, Any] = {"status": "active", "created": "2024-03-05T10:00:00Z"}
    notice |= {"payment": {"display": "Unused"}, "recipient": {"display": "Unused"}}
    notice |= {"request": fhirpy.reference("Patient", "p7"), "amount": {"value": 1.25, "currency": "USD"}}
    fhirpy.resource("PaymentNotice", **notice).save()
    notices = fhirpy.resources("PaymentNotice").search(request="Patient/p7").fetch_all()
    assert len(notices) == before + 1
    assert notices[-1].get_by_path("paymentStatus.coding.0.code") == "paid"

    answer = {"linkId": "remarks", "answer": [{"valueString": label}]}
    response: dict[str, Any] = {
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
        "authored": "2024-05-01T08:00:00Z",
    }
    response |= {"questionnaire": f"{service.url}/Questionnaire/q-intake", "item": [answer]}
    fhirpy.resource("QuestionnaireResponse", **response).save()
    found = fhirpy.resources("QuestionnaireResponse").search(patient="p1", authored__ge="2024-05-01").fetch_all()
    assert label in [one.get_by_path("item.0.answer.0.valueString") for one in found]


def test_fhirpy_updates_and_validates(fhirpy):
    """Its update is a PUT of what it read, which the interface takes."""
    label = uuid.uuid4().hex
    labels = [{"type": {"text": "label"}, "valueString": label}]
    task = fhirpy.resource("Task", **new_task("before"), input=labels)
    assert task.is_valid()
    task.save()
    found = fhirpy.resources("Task").search(label=label).get()
    found["status"] = "completed"
    found.update()
    assert fhirpy.resources("Task").search(_id=found.id).first()["status"] == "completed"
    assert not fhirpy.resource("Task", **new_task("x") | {"status": "draft"}).is_valid()


def test_fhirpy_follows_the_pages_in_order_to_the_last(fhirpy):
    """Each row once, in the order asked for."""
    label = f"{uuid.uuid4().hex} é&=+%|"
    for day in range(1, 8):
        period = {"restriction": {"period": {"end": f"2030-01-0{day}"}}}
        labels = [{"type": {"text": "label"}, "valueString": label.replace("|", "/")}]
        fhirpy.resource("Task", **new_task(f"day {day}"), **period, input=labels).save()
    found = fhirpy.resources("Task").search(label=label.replace("|", "/")).sort("-due-date").limit(3)
    assert found.fetch_raw()["total"] == 7
    assert len(found.fetch()) == 3
    assert [task["description"] for task in found] == [f"day {day}" for day in range(7, 0, -1)]


def test_fhirpy_searches_with_tokens_dates_and_nothing_found(fhirpy):
    reports = fhirpy.resources("DiagnosticReport")
    assert {one.id for one in reports.search(category="http://loinc.org|LP29684-5").fetch_all()} >= {"r2", "R.8-Upper"}
    assert reports.search(Raw(date="ge2100-01-01")).fetch_all() == []
    assert reports.search(patient="Patient/p1", date__ge="2000-01-01").first()["resourceType"] == "DiagnosticReport"
    assert fhirpy.resources("Questionnaire").search(questionnaire_code="69724-3").get().id == "q-score"


def test_fhirpy_raises_the_outcome_of_a_refused_request(fhirpy, service):
    """Its `count` sends a parameter of another server, which is refused, or ignored when the client is lenient."""
    with pytest.raises(OperationOutcome) as refused:
        fhirpy.resource("Task", **new_task("x") | {"intent": "order"}).save()
    assert refused.value.resource["issue"][0]["code"] == "business-rule"
    with pytest.raises(OperationOutcome, match="_totalMethod"):
        fhirpy.resources("Questionnaire").count()
    authorization = service.headers["authorization"]
    lenient = SyncFHIRClient(service.url, authorization, extra_headers={"Prefer": "handling=lenient"})
    assert lenient.resources("Questionnaire").count() == 5
    with pytest.raises(AuthorizationError, match="Authentication failed"):
        SyncFHIRClient(service.url, authorization="Bearer nobody").resources("Task").fetch()


def test_fhirpy_asks_side_by_side(service):
    """The asynchronous client: reads and creates at once."""
    label = uuid.uuid4().hex

    async def both():
        client = AsyncFHIRClient(service.url, authorization=service.headers["authorization"])
        labels = [{"type": {"text": "label"}, "valueString": label}]
        tasks = [client.resource("Task", **new_task(f"number {n}"), input=labels) for n in range(10)]
        reads = [client.get("Questionnaire", "q-intake") for _ in range(10)]
        await asyncio.gather(*(task.save() for task in tasks), *reads)
        return [task async for task in client.resources("Task").search(label=label).limit(4)]

    assert {task["description"] for task in asyncio.run(both())} == {f"number {n}" for n in range(10)}


# --- fhirclient -----------------------------------------------------------------------------------


@pytest.fixture
def fhirclient(service):
    server = fhirclient_server(service.url, service.headers["authorization"])
    yield server
    server.session.close()


def reference(target):
    return FHIRReference({"reference": target})


def first_page(found, server):
    """The resources of the first page. Its pages beyond need absolute links; the interface's are relative."""
    return [entry.resource for entry in next(found.perform_iter(server)).entry or ()]


def a_task(description):
    task = Task()
    task.status, task.intent, task.description = "requested", "unknown", description
    task.requester = reference("Practitioner/dr1")
    return task


def test_fhirclient_reads_the_capability_statement(service):
    """It needs no token, and starts anew with what the statement says of security."""
    server = FHIRClient({"app_id": "tests", "api_base": service.url}).server
    assert server.capabilityStatement.fhirVersion == "4.0.1"
    assert {one.type for one in server.capabilityStatement.rest[0].resource} == set(RESOURCES)
    server.session.close()


def test_fhirclient_reads_every_type_into_its_strict_models(fhirclient):
    questionnaire = Questionnaire.read("q-intake", fhirclient)
    assert [item.linkId for item in questionnaire.item][:2] == ["mood", "symptoms"]
    assert questionnaire.item[0].answerOption[0].valueCoding.code == "LA6568-5"
    report = DiagnosticReport.read("r1", fhirclient)
    assert (report.status, report.text.status, report.subject.type) == ("final", "generated", "Patient")
    with pytest.raises(FHIRNotFoundException):
        Task.read("nothing", fhirclient)


def test_fhirclient_creates_and_reads_a_task(fhirclient):
    words = uuid.uuid4().hex
    task = a_task(f"{words} by fhirclient")
    task.for_fhir, task.owner = reference("Patient/p1"), reference("Practitioner/dr2")
    task.authoredOn = FHIRDateTime("2024-02-03T04:05:06+01:00")
    task.restriction = TaskRestriction({"period": Period({"end": "2031-01-01T00:00:00Z"}).as_json()})
    note = Annotation({"text": "a note"})
    note.authorReference = reference("Practitioner/dr1")
    task.note = [note]
    assert task.create(fhirclient) is None
    (found,) = first_page(Task.where({"description": words.upper()}), fhirclient)
    read = Task.read(found.id, fhirclient)
    assert read.as_json() == found.as_json()
    assert (read.description, read.owner.reference) == (task.description, "Practitioner/dr2")
    assert read.authoredOn.as_json() == "2024-02-03T03:05:06+00:00"
    assert (read.note[0].text, read.note[0].authorReference.type) == ("a note", "Practitioner")

    read.status = "completed"
    assert read.update() is None
    assert Task.read(found.id, fhirclient).status == "completed"


def test_fhirclient_creates_and_reads_a_payment(fhirclient):
    notice = PaymentNotice()
    notice.status, notice.created = "active", FHIRDateTime("2024-03-05T10:00:00Z")
    notice.request, notice.payment, notice.recipient = reference("Patient/p7"), FHIRReference(), FHIRReference()
    notice.amount = Money({"value": 2.5, "currency": "USD"})
    assert notice.create(fhirclient) is None
    found = first_page(PaymentNotice.where({"request": "Patient/p7", "_count": "100"}), fhirclient)[-1]
    assert Decimal(str(found.amount.value)) == Decimal("2.5")
    assert (found.payment.display, found.paymentStatus.coding[0].code) == ("Unused", "paid")


def test_fhirclient_creates_and_reads_a_response(fhirclient, service):
    answer = QuestionnaireResponseItemAnswer()
    answer.valueCoding = Coding({"system": "http://loinc.org", "code": "LA6568-5", "display": "Not at all"})
    item = QuestionnaireResponseItem()
    item.linkId, item.answer = "mood", [answer]
    response = QuestionnaireResponse()
    response.questionnaire, response.status = f"{service.url}/Questionnaire/q-intake", "completed"
    response.subject, response.item = reference("Patient/p3"), [item]
    response.authored = FHIRDateTime("2024-06-07T08:09:10Z")
    assert response.create(fhirclient) is None
    asked = {"patient": "Patient/p3", "authored": "2024-06-07", "questionnaire.code": "http://loinc.org|55757-9"}
    (found,) = first_page(QuestionnaireResponse.where(asked), fhirclient)
    assert (found.item[0].text, found.item[0].answer[0].valueCoding.code) == (
        "Little interest or pleasure?",
        "LA6568-5",
    )
    assert QuestionnaireResponse.read(found.id, fhirclient).as_json() == found.as_json()


def test_fhirclient_searches(fhirclient, service):
    found = first_page(DiagnosticReport.where({"patient": "Patient/p1", "date": "ge2000-01-01"}), fhirclient)
    assert found
    assert {report.subject.reference for report in found} == {"Patient/p1"}
    assert first_page(Task.where({"label": uuid.uuid4().hex}), fhirclient) == []
    stranger = fhirclient_server(service.url, "Bearer nobody")
    with pytest.raises(FHIRUnauthorizedException):
        first_page(Task.where({"status": "requested"}), stranger)
    stranger.session.close()
