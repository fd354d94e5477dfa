"""Records of the audit as FHIR R4 AuditEvents, after the patterns of IHE's Basic Audit Log Patterns (BALP)."""

from collections.abc import Iterator, Mapping
from typing import Any

_HL7 = "http://terminology.hl7.org/CodeSystem"
_REST = {"system": f"{_HL7}/audit-event-type", "code": "rest", "display": "RESTful Operation"}
_DICOM = "http://dicom.nema.org/resources/ontology/DCM"
_LOGIN = (
    {"system": _DICOM, "code": "110114", "display": "User Authentication"},
    {
        "system": _DICOM,
        "code": "110122",
        "display": "Login",
    },
)
_INTERACTIONS = {
    "create": ("create", "C"),
    "update": ("update", "U"),
    "read": ("read", "R"),
    "document": ("read", "R"),
    "search": ("search-type", "E"),
    "history": ("history-type", "R"),
    "batch": ("batch", "E"),
    "validate": ("operation", "E"),
}
"""By the interaction of a record: the code of FHIR's restful-interaction, and the action. `sign-in` is a login."""
_ROLES = {"client": ("110153", "Source Role ID"), "server": ("110152", "Destination Role ID")}
_CORRELATION = {"system": "https://profiles.ihe.net/ITI/BALP/CodeSystem/BasicAuditEntityType", "code": "XrequestId"}
UNKNOWN = "unknown-"
"""The beginning of a keyed hash, which replaces the id of a patient that the store does not know."""


def event_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of the audit as an AuditEvent, with nothing added."""
    interaction = str(record["interaction"])
    if interaction == "sign-in":
        kind, subtype, action = *_LOGIN, "E"
    else:
        code, action = _INTERACTIONS.get(interaction, (interaction, "E"))
        if interaction == "history" and record.get("id"):
            code = "history-instance"
        kind, subtype = _REST, {"system": "http://hl7.org/fhir/restful-interaction", "code": code}
    status = int(record["status"])
    return {
        "resourceType": "AuditEvent",
        "type": kind,
        "subtype": [subtype],
        "action": action,
        "recorded": record["time"],
        "outcome": "0" if status < 400 else "4" if status < 500 else "8",
        "outcomeDesc": f"HTTP {status}",
        "agent": [_agent("client", record.get("client")), _agent("server", "fhir-service")],
        "source": {
            "observer": {"display": "fhir-service"},
            "type": [{"system": f"{_HL7}/security-source-type", "code": "4", "display": "Application Server"}],
        },
        "entity": list(_entities(record)),
    }


def _agent(side: str, who: str | None) -> dict[str, Any]:
    code, display = _ROLES[side]
    agent = {
        "type": {"coding": [{"system": _DICOM, "code": code, "display": display}]},
        "requestor": side == "client",
    }
    if side == "server":
        return agent | {"who": {"display": who}}
    return agent | {"who": {"identifier": {"value": who}} if who else {"display": "nobody who is known"}}


def _entities(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    patients = [str(patient) for patient in record.get("patients") or ()]
    resource_type, resource_id = str(record["type"]), record.get("id")
    if not (resource_type == "Patient" and resource_id in patients):
        named = f"{resource_type}/{resource_id}" if resource_id else resource_type
        what = {"reference": named} if resource_id else {"display": named}
        yield {"what": what, "type": _kind("2", "System Object"), "role": _role("4", "Domain Resource")}
    for patient in patients:
        known = not patient.startswith(UNKNOWN)
        whose: dict[str, Any] = {"identifier": {"value": patient}}
        if known:
            whose = {"reference": f"Patient/{patient}"}
        yield {"what": whose, "type": _kind("1", "Person"), "role": _role("1", "Patient")}
    if correlation := record.get("correlation"):
        yield {"what": {"identifier": {"value": correlation}}, "type": _CORRELATION}


def _kind(code: str, display: str) -> dict[str, str]:
    return {"system": f"{_HL7}/audit-entity-type", "code": code, "display": display}


def _role(code: str, display: str) -> dict[str, str]:
    return {"system": f"{_HL7}/object-role", "code": code, "display": display}
