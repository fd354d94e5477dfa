"""Observation: results that reports name. Read and searched only; loaded as reference data.

An addition (decision X6): with `interface_only` the service does not show it.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from fhir_service.interface.resources.common import ID, codings, reference_id
from fhir_service.interface.vocabulary import Param, Resource


class Observation(BaseModel):
    """A result as it is shown. What it holds is decided when it is loaded."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    resourceType: str
    id: str
    status: str


LEFT_OUT = ("meta", "contained", "implicitRules", "text")
"""Elements that are not shown as loaded: they tell of the server that the record comes from, or may hold scripts."""


def content_of(loaded: dict[str, Any]) -> dict[str, Any]:
    """Return a loaded observation without the elements that are not shown as loaded."""
    return {name: value for name, value in loaded.items() if name not in LEFT_OUT}


_patient = reference_id("subject")


def _of_patient(stored: dict[str, Any]) -> str | None:
    """Return the id of the patient; None for an observation of a device, a group or a place."""
    return _patient(stored) if stored.get("subject", {}).get("reference", "").startswith("Patient/") else None


OBSERVATION = Resource(
    "Observation",
    model=Observation,
    interactions=("read", "search"),
    params=(
        ID,
        Param("code", "codes", codings("code")),
        Param("patient", "reference", _of_patient, target="Patient"),
    ),
    addition=True,
)
