"""Notes of the chart: an Encounter belongs to one, a response without either makes a data-import note of its own."""

from operator import itemgetter
from typing import Any

from fhir_service.interface.times import instant_text
from fhir_service.interface.vocabulary import Moment
from fhir_service.store.changes import Changes
from fhir_service.store.dialect import Row
from fhir_service.store.tables import BODIES, NOTE, columns_of
from fhir_service.store.view import StoredNote, View

_placed = itemgetter(*map(columns_of(BODIES["QuestionnaireResponse"]).index, ("note", "patient")))


def place(response: Any, row: Row, view: View, changes: Changes, moment: Moment) -> None:
    """Make the data-import note of a stored response when it is new, at `authored` on the timeline."""
    note_id, patient = _placed(row)
    if view.note(note_id):
        return
    view.notes[note_id] = StoredNote(note_id, patient, None, "open")
    authored = response.authored or instant_text(moment.now)
    note = {"id": note_id, "patient": patient, "encounter": None, "state": "open", "service_at": authored}
    changes.add(NOTE, note)
