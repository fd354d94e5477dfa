"""Notes of the chart: an Encounter belongs to one, a response without either makes a data-import note of its own."""

from typing import Any

from fhir_service.store.changes import Changes
from fhir_service.store.tables import NOTE
from fhir_service.store.view import StoredNote, View


def place(stored: dict[str, Any], view: View, changes: Changes) -> None:
    """Make the data-import note that a stored response names when it is new, at `authored` on the timeline."""
    note_id = stored["extension"][0]["valueId"]
    if view.note(note_id):
        return
    patient = stored["subject"]["reference"].partition("/")[2]
    view.notes[note_id] = StoredNote(note_id, patient, None, "open")
    row = {"id": note_id, "patient": patient, "encounter": None, "state": "open", "service_at": stored["authored"]}
    changes.add(NOTE, row)
