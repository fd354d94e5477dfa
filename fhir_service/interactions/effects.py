"""The effects of a new resource beside its own row: payments pay charges, responses make notes.

An Encounter belongs to one note; a response without either makes a data-import note of its own.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from fhir_service.interface import billing
from fhir_service.interface.times import instant_text
from fhir_service.interface.vocabulary import Moment
from fhir_service.store.changes import Changes
from fhir_service.store.dialect import Row
from fhir_service.store.tables import BODIES, NOTE, columns_of
from fhir_service.store.view import StoredNote, View

_placed = itemgetter(*map(columns_of(BODIES["QuestionnaireResponse"]).index, ("note", "patient")))


def _place(response: Any, row: Row, view: View, changes: Changes, moment: Moment) -> None:
    """Make the data-import note of a new response, at `authored` on the timeline."""
    note_id, patient = _placed(row)
    if view.note(note_id):
        return
    view.notes[note_id] = StoredNote(note_id, patient, None, "open")
    authored = response.authored or instant_text(moment.now)
    note = {"id": note_id, "patient": patient, "encounter": None, "state": "open", "service_at": authored}
    changes.add(NOTE, note)


Effect = Callable[[Any, Row, View, Changes, Moment], None]
"""Takes a body, its row, the view and the changes of its batch, and the time."""


_paid = itemgetter(*map(columns_of(BODIES["PaymentNotice"]).index, ("id", "request", "cents", "claim")))


def _pay(_: Any, row: Row, view: View, changes: Changes, _moment: Moment) -> None:
    """Book a payment on the patient's account, and allocate it to open charges."""
    id, patient, cents, claim = _paid(row)
    account, charges = view.account(patient), view.charges.get(patient, [])
    account.paid += cents
    parts = billing.allocate(cents, charges, claim)
    changes.pay(id, patient, account, parts)
    # Only the last one may be left open.
    if parts and not parts[0][0].open:
        view.charges[patient] = [charge for charge in charges if charge.paid < charge.cents]


EFFECTS: dict[str, Effect] = {
    "PaymentNotice": _pay,
    "QuestionnaireResponse": _place,
}
