"""The audit as FHIR AuditEvents: every kind of act, as valid R4, with what the record holds and no more."""

import json

import pytest
from click.testing import CliRunner
from fhir.resources.R4B.auditevent import AuditEvent

from fhir_service.__main__ import main
from fhir_service.audit.events import event_of
from fhir_service.audit.records import read
from tests.conftest import Running
from tests.support.bodies import task

RECORD = {
    "interaction": "read",
    "type": "Task",
    "status": 200,
    "id": "t1",
    "patients": ["p1"],
    "time": "2026-03-01T16:30:00.000+00:00",
    "client": "c1",
    "correlation": "x1",
}


def test_a_record_is_an_event_with_client_resource_patient_and_correlation() -> None:
    """EXTRA-OPS-05"""
    hl7, dicom = "http://terminology.hl7.org/CodeSystem", "http://dicom.nema.org/resources/ontology/DCM"

    def agent(code: str, display: str, who: dict[str, object], requestor: bool) -> dict[str, object]:
        kind = {"coding": [{"system": dicom, "code": code, "display": display}]}
        return {"type": kind, "requestor": requestor, "who": who}

    def entity(reference: str, kind: tuple[str, str], role: tuple[str, str]) -> dict[str, object]:
        return {
            "what": {"reference": reference},
            "type": {"system": f"{hl7}/audit-entity-type", "code": kind[0], "display": kind[1]},
            "role": {"system": f"{hl7}/object-role", "code": role[0], "display": role[1]},
        }

    balp = "https://profiles.ihe.net/ITI/BALP/CodeSystem/BasicAuditEntityType"
    assert event_of(RECORD) == {
        "resourceType": "AuditEvent",
        "type": {"system": f"{hl7}/audit-event-type", "code": "rest", "display": "RESTful Operation"},
        "subtype": [{"system": "http://hl7.org/fhir/restful-interaction", "code": "read"}],
        "action": "R",
        "recorded": "2026-03-01T16:30:00.000+00:00",
        "outcome": "0",
        "outcomeDesc": "HTTP 200",
        "agent": [
            agent("110153", "Source Role ID", {"identifier": {"value": "c1"}}, True),
            agent("110152", "Destination Role ID", {"display": "fhir-service"}, False),
        ],
        "source": {
            "observer": {"display": "fhir-service"},
            "type": [{"system": f"{hl7}/security-source-type", "code": "4", "display": "Application Server"}],
        },
        "entity": [
            entity("Task/t1", ("2", "System Object"), ("4", "Domain Resource")),
            entity("Patient/p1", ("1", "Person"), ("1", "Patient")),
            {"what": {"identifier": {"value": "x1"}}, "type": {"system": balp, "code": "XrequestId"}},
        ],
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"interaction": "search", "id": None}, {"action": "E", "subtype": "search-type", "outcome": "0"}),
        ({"interaction": "history"}, {"action": "R", "subtype": "history-instance", "outcome": "0"}),
        ({"interaction": "history", "id": None}, {"action": "R", "subtype": "history-type", "outcome": "0"}),
        ({"interaction": "update", "status": 412}, {"action": "U", "subtype": "update", "outcome": "4"}),
        ({"interaction": "create", "status": 503}, {"action": "C", "subtype": "create", "outcome": "8"}),
        ({"interaction": "sign-in", "type": "Chart"}, {"action": "E", "subtype": "110122", "outcome": "0"}),
        ({"client": None}, {"action": "R", "subtype": "read", "outcome": "0"}),
    ],
)
def test_each_kind_of_act_is_a_valid_event(changed: dict[str, object], expected: dict[str, str]) -> None:
    """EXTRA-OPS-05"""
    event = event_of({**RECORD, **changed})
    AuditEvent.model_validate(event)
    found = {"action": event["action"], "subtype": event["subtype"][0]["code"], "outcome": event["outcome"]}
    assert found == expected


def test_a_patient_who_is_not_known_is_referred_to_by_nothing() -> None:
    """EXTRA-OPS-04: a keyed hash is no id of a resource."""
    [_, patient, _] = event_of({**RECORD, "patients": ["unknown-0123456789abcdef"]})["entity"]
    assert patient["what"] == {"identifier": {"value": "unknown-0123456789abcdef"}}


def test_the_command_prints_an_event_for_each_record(fresh_service: Running) -> None:
    """EXTRA-OPS-04: of what a service really wrote."""
    fresh_service.client.post("/Task", json=task(1))
    fresh_service.client.get("/Task?patient=p1")
    fresh_service.client.get("/Task/none")
    path = fresh_service.service.audit.path
    environment = {"FHIR_SERVICE_AUDIT": str(path), "FHIR_SERVICE_STORE": "unused"}
    done = CliRunner(env=environment).invoke(main, ["audit", "--format", "auditevent"])
    events = [json.loads(line) for line in done.output.splitlines()]
    assert [event["subtype"][0]["code"] for event in events] == ["create", "search-type", "read"]
    assert [event["outcome"] for event in events] == ["0", "0", "4"]
    for event in events:
        AuditEvent.model_validate(event)
    assert events == [event_of(record) for record in read(path, None, None, None)]
