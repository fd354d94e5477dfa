"""Examine one record: find its flaws, or make the rows that the store will hold. Pure functions, by type."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import orjson

from fhir_service.interface.json_text import dump_json
from fhir_service.interface.resources.questionnaire import STATUSES as QUESTIONNAIRE_STATUSES
from fhir_service.interface.resources.questionnaire_response import AUTOMATION
from fhir_service.interface.site import Site
from fhir_service.reference import claims, observations, questionnaires, reports
from fhir_service.reference import records as others
from fhir_service.reference.claims import ClaimCharge
from fhir_service.reference.reading import Flaw, Record
from fhir_service.reference.records import EncounterNote
from fhir_service.reference.references import TYPES, patient_of, targets
from fhir_service.reference.reports import Document
from fhir_service.reference.structure import flaws_of

# The element that names the patient, and whether a record must have it.
PATIENT_ELEMENTS = {
    "Encounter": ("subject", True),
    "Claim": ("patient", True),
    "Observation": ("subject", False),
    "DiagnosticReport": ("subject", True),
}
# Decisions D1 and Q1a: what else is refused.
STATUSES: dict[str, Collection[str]] = {"Questionnaire": QUESTIONNAIRE_STATUSES, "DiagnosticReport": reports.STATUSES}


@dataclass(slots=True)
class ReadyRecord:
    """A record ready to be stored. shown: the stored form, for a type that the interface shows."""

    record: Record
    digest: str
    last_updated: str | None
    targets: list[str] = field(default_factory=list)
    patient: str | None = None
    display: str | None = None
    note: EncounterNote | None = None
    charge: ClaimCharge | None = None
    shown: dict[str, Any] | None = None
    documents: list[Document] = field(default_factory=list)
    body: str = ""

    @property
    def reference(self) -> str:
        return self.record.reference

    @property
    def id(self) -> str:
        return self.record.id or ""


def check_name(record: Record) -> None:
    """Add flaws for a missing or wrong type or id of a record."""
    kind = record.body.get("resourceType")
    if record.flaws:
        return
    if not kind:
        record.flaws.append(Flaw("resourceType", "a required element is missing"))
    elif kind not in TYPES:
        record.flaws.append(Flaw("resourceType", "records of this type are not loaded"))
    elif not record.id:
        missing = "id" not in record.body
        record.flaws.append(
            Flaw(
                f"{kind}.id",
                "a required element is missing" if missing else "not an id of 1 to 64 letters, digits, dashes and dots",
            )
        )
    elif record.reference == AUTOMATION:
        record.flaws.append(Flaw("Practitioner.id", "the id is that of the built-in automation user"))


def ready(record: Record, site: Site) -> ReadyRecord:
    """Return a record with its digest and its references. Add a flaw if it cannot be written as JSON.

    Texts in it are valid by then. Only a name of an element may hold half a character still.
    """
    try:
        digest = hashlib.sha256(orjson.dumps(record.body, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()
    except orjson.JSONEncodeError:
        record.flaws.append(Flaw(record.type or "", "the text is not valid Unicode"))
        return ReadyRecord(record, "", None)
    updated = record.body.get("meta")
    updated = updated.get("lastUpdated") if isinstance(updated, dict) else None
    return ReadyRecord(record, digest, updated if isinstance(updated, str) else None, list(targets(record.body, site)))


def examine(found: ReadyRecord, site: Site) -> None:
    """Fill in what the store will hold, or the record's flaws."""
    record, kind = found.record, found.record.type or ""
    if kind == "Questionnaire":
        record.body = questionnaires.with_answer_booleans(record.body)
    status = record.body.get("status")
    if kind in STATUSES and isinstance(status, str) and status not in STATUSES[kind]:
        record.flaws.append(Flaw(f"{kind}.status", "the status is not supported"))
    if structural := list(flaws_of(kind, record.body)):
        record.flaws += structural
        return
    element, required = PATIENT_ELEMENTS.get(kind, ("", False))
    if element:
        found.patient = patient_of(record.body, element, site, required, record.flaws)
    if kind in _FILL:
        _FILL[kind](found, site)
    if record.flaws:
        return
    kept = reports.without_documents(record.body) if kind == "DiagnosticReport" else record.body
    found.body = dump_json(kept).decode()


def _person(found: ReadyRecord, _: Site) -> None:
    found.display = others.display(found.record.body)


def _encounter(found: ReadyRecord, site: Site) -> None:
    found.note = others.note(found.record.body, site, found.record.flaws)


def _claim(found: ReadyRecord, _: Site) -> None:
    found.charge = claims.charge(found.record.body, found.record.flaws)


def _questionnaire(found: ReadyRecord, site: Site) -> None:
    found.record.flaws += questionnaires.flaws_of(found.record.body, site)
    if not found.record.flaws:
        found.shown = questionnaires.stored_questionnaire(found.record.body, site)


def _observation(found: ReadyRecord, site: Site) -> None:
    found.shown = observations.stored_observation(found.record.body, site)


def _report(found: ReadyRecord, site: Site) -> None:
    found.shown, found.documents = reports.stored_report(found.record.body, site, found.record.flaws)


_FILL: dict[str, Callable[[ReadyRecord, Site], None]] = {
    "Patient": _person,
    "Practitioner": _person,
    "Group": _person,
    "Encounter": _encounter,
    "Claim": _claim,
    "Questionnaire": _questionnaire,
    "Observation": _observation,
    "DiagnosticReport": _report,
}
