"""DiagnosticReport: lab and imaging reports. Read and searched only; loaded as reference data."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from fhir_service.interface.resources.common import ID, codings, reference_id
from fhir_service.interface.vocabulary import Param, Resource

STATUSES = ("final", "entered-in-error")


class DiagnosticReport(BaseModel):
    """A report as it is shown. What it holds is decided when it is loaded."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    resourceType: str
    id: str
    status: str


def _date(stored: dict[str, Any]) -> str | None:
    return stored.get("effectiveDateTime")


DIAGNOSTIC_REPORT = Resource(
    "DiagnosticReport",
    model=DiagnosticReport,
    interactions=("read", "search"),
    params=(
        ID,
        Param("category", "codes", codings("category")),
        Param("code", "codes", codings("code")),
        Param("date", "date", _date),
        Param("patient", "reference", reference_id("subject"), target="Patient"),
    ),
)
