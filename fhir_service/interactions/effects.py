"""Effects of a new resource beside its own row: payments reach charges, responses make notes."""

from collections.abc import Callable, Mapping
from typing import Any

from fhir_service import billing, notes
from fhir_service.interface.vocabulary import Moment
from fhir_service.store.changes import Changes
from fhir_service.store.view import View

Effect = Callable[[Any, Mapping[str, Any], Moment, View, Changes], None]
"""Given a body, the values of its columns by name, its moment, and what its batch sees and changes."""


def _pay(_: Any, columns: Mapping[str, Any], moment: Moment, view: View, changes: Changes) -> None:
    """Books a payment on the patient's account and applies it to open charges."""
    patient, cents = columns["request"], columns["cents"]
    account, charges = view.account(patient), view.charges.get(patient, [])
    account.paid += cents
    parts = billing.allocate(cents, charges, columns["claim"])
    changes.pay(moment.id, patient, account, parts)
    if not all(charge.open for charge, _ in parts):
        view.charges[patient] = [charge for charge in charges if charge.open]


EFFECTS: dict[str, Effect] = {
    "PaymentNotice": _pay,
    "QuestionnaireResponse": notes.place,
}
