"""Loaded records that the interface does not show: names of people and groups, and the notes of encounters."""

from dataclasses import dataclass
from typing import Any

from fhir_service.interface.datatypes import is_id
from fhir_service.interface.site import Site
from fhir_service.reference.reading import Flaw
from fhir_service.reference.references import time_of

NOTE_STATES = {"cancelled": "cancelled", "entered-in-error": "deleted"}


@dataclass(frozen=True, slots=True)
class EncounterNote:
    """The note of an Encounter. `id` is None when the record names none."""

    id: str | None
    state: str
    service_at: str | None


def display(body: dict[str, Any]) -> str | None:
    """Return the name of a Group, Patient or Practitioner."""
    name = body.get("name")
    if isinstance(name, str):
        return name
    names = name or [{}]
    chosen = next((found for found in names if found.get("use") == "official"), names[0])
    parts = [part for part in [*chosen.get("given", ()), chosen.get("family")] if part]
    return chosen.get("text") or " ".join(parts) or None


def note(encounter: dict[str, Any], site: Site, flaws: list[Flaw]) -> EncounterNote:
    """Return the note of an Encounter: its id from the note-id extension, its state from the status (QR-NOTE-10)."""
    found = None
    for index, extension in enumerate(encounter.get("extension", ())):
        if extension.get("url") == site.note_id:
            found = extension.get("valueId")
            if not isinstance(found, str) or not is_id(found):
                flaws.append(
                    Flaw(
                        f"Encounter.extension[{index}].valueId", "not an id of 1 to 64 letters, digits, dashes and dots"
                    )
                )
    service_at = time_of(encounter.get("period", {}), "start", "Encounter.period", flaws)
    return EncounterNote(found, NOTE_STATES.get(encounter.get("status", ""), "open"), service_at)
