"""A loaded DiagnosticReport: its form at the interface, and its documents."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fhir_service.interface.datatypes import is_content_type, reference
from fhir_service.interface.resources.common import optional
from fhir_service.interface.site import STORED, Site
from fhir_service.reference.narrative import paragraphs, sanitised
from fhir_service.reference.reading import Flaw
from fhir_service.reference.references import target_of, time_of

# Decision D1: how the statuses of FHIR are shown; others are refused.
STATUSES = {
    "final": "final",
    "amended": "final",
    "corrected": "final",
    "appended": "final",
    "entered-in-error": "entered-in-error",
}
# Around `<report>/<n>` in a stored body: rendering puts the signed address of the document there.
SIGNED = "\x94"


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a report: `data` is base64."""

    content_type: str
    data: str


def stored_report(report: dict[str, Any], site: Site, flaws: list[Flaw]) -> tuple[dict[str, Any], list[Document]]:
    """Return the stored form of a report, with markers, and its documents in order."""
    if not report.get("status"):
        flaws.append(Flaw("DiagnosticReport.status", "a required element is missing"))
    status = STATUSES.get(report.get("status", ""))
    found = documents(report, flaws)
    categories = [concept for each in report.get("category", ()) if (concept := _concept(each, site))]
    code = _concept(report["code"], site) | optional({"text": report["code"].get("text")})
    effective = time_of(report, "effectiveDateTime", "DiagnosticReport", flaws) or time_of(
        report.get("effectivePeriod", {}), "start", "DiagnosticReport.effectivePeriod", flaws
    )
    summary = paragraphs(
        _name(code) or "Diagnostic report", ", ".join(filter(None, [*map(_name, categories[:1]), effective, status]))
    )
    body = {
        "resourceType": "DiagnosticReport",
        "id": report["id"],
        "text": {"status": "generated", "div": _narrative(report) or summary},
        "identifier": report.get("identifier") or [{"system": f"http://{STORED.vendor}.com", "value": report["id"]}],
        "status": status,
        "category": categories,
        "code": code,
        "subject": _reference(report.get("subject"), site, "Patient"),
        "encounter": _reference(report.get("encounter"), site, "Encounter"),
        "effectiveDateTime": effective,
        "issued": time_of(report, "issued", "DiagnosticReport", flaws),
        "performer": _references(report.get("performer", ()), site, "Practitioner"),
        "result": _references(report.get("result", ()), site, "Observation"),
        "presentedForm": [_form(report["id"], number, document) for number, document in enumerate(found)],
    }
    return optional(body), found


def documents(report: dict[str, Any], flaws: list[Flaw]) -> list[Document]:
    """Return the documents in a report. A document at an address is dropped, and never fetched (DR-31, DR-32)."""
    found = []
    for index, form in enumerate(report.get("presentedForm", ())):
        if (data := form.get("data")) is None:
            continue
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            flaws.append(Flaw(f"DiagnosticReport.presentedForm[{index}].data", "not base64"))
            continue
        kind = form.get("contentType") or "application/octet-stream"
        if not is_content_type(kind):
            flaws.append(
                Flaw(
                    f"DiagnosticReport.presentedForm[{index}].contentType",
                    "an HTTP header cannot carry the content type",
                )
            )
            continue
        found.append(Document(kind, base64.b64encode(content).decode()))
    return found


def without_documents(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without the data of its documents, which are stored beside it."""
    forms = [
        {name: value for name, value in form.items() if name != "data"} for form in report.get("presentedForm", ())
    ]
    return report | {"presentedForm": forms} if forms else report


def _concept(concept: dict[str, Any], site: Site) -> dict[str, Any]:
    """Return the codings of a concept. Any system is allowed (DR-14)."""
    return optional({"coding": [_coding(coding, site) for coding in concept.get("coding", ())]})


def _coding(coding: dict[str, Any], site: Site) -> dict[str, Any]:
    system = coding.get("system")
    return optional(
        {
            "system": site.stored_systems.get(system or "", system),
            "code": coding.get("code"),
            "display": coding.get("display"),
        }
    )


def _reference(element: dict[str, Any] | None, site: Site, resource_type: str) -> dict[str, str] | None:
    target = target_of(element, site, resource_type)
    return reference(target) if target else None


def _references(elements: Iterable[dict[str, Any]], site: Site, resource_type: str) -> list[dict[str, str]]:
    return [found for element in elements if (found := _reference(element, site, resource_type))]


def _form(report_id: str, number: int, document: Document) -> dict[str, Any]:
    return {
        "extension": [{"url": STORED.deprecated_url, "valueUri": f"{SIGNED}{report_id}/{number}{SIGNED}"}],
        "contentType": document.content_type,
        "url": f"{STORED.url('DiagnosticReport', report_id)}/files/presentedForm/{number}",
    }


def _narrative(report: dict[str, Any]) -> str | None:
    """Return the allowed part of the narrative (DR-06)."""
    loaded = report.get("text", {}).get("div")
    return sanitised(loaded) if isinstance(loaded, str) else None


def _name(concept: dict[str, Any]) -> str | None:
    codings = concept.get("coding", ())
    names = [concept.get("text"), *(c.get("display") for c in codings), *(c.get("code") for c in codings)]
    return next((name for name in names if name), None)
