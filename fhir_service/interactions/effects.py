"""Effects of a new resource beside its own row: payments reach charges, responses make notes."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from fhir_service import billing, notes
from fhir_service.interface.vocabulary import Moment
from fhir_service.store.changes import Changes
from fhir_service.store.tables import indexed
from fhir_service.store.view import View

Effect = Callable[[Any, str, Sequence[Any], View, Changes, Moment], None]
"""Given a body, its id, the values of its columns, what its batch sees and changes, and the moment."""


_paid = itemgetter(*map(indexed("PaymentNotice").index, ("request", "cents", "claim")))


def _pay(_: Any, id: str, columns: Sequence[Any], view: View, changes: Changes, _moment: Moment) -> None:
    """Books a payment on the patient's account and applies it to open charges."""
    patient, cents, claim = _paid(columns)
    account, charges = view.account(patient), view.charges.get(patient, [])
    account.paid += cents
    parts = billing.allocate(cents, charges, claim)
    changes.pay(id, patient, account, parts)
    if parts and any(charge.paid == charge.cents for charge, _ in parts):
        view.charges[patient] = [charge for charge in charges if charge.open]


EFFECTS: dict[str, Effect] = {
    "PaymentNotice": _pay,
    "QuestionnaireResponse": notes.place,
}
