"""Effects of a new resource beside its own row: payments reach charges, responses make notes."""

from collections.abc import Callable
from typing import Any

from fhir_service import billing, notes
from fhir_service.interface.datatypes import id_of
from fhir_service.interface.resources.payment_notice import cents_of, claim_of
from fhir_service.store.changes import Changes
from fhir_service.store.view import View


def _pay(stored: dict[str, Any], view: View, changes: Changes) -> None:
    """Books a payment on the patient's account and applies it to open charges."""
    patient, cents = id_of(stored["request"]["reference"]), cents_of(stored)
    account, charges = view.account(patient), view.charges.get(patient, [])
    account.paid += cents
    parts = billing.allocate(cents, charges, claim_of(stored))
    changes.pay(stored["id"], patient, account, parts)
    if not all(charge.open for charge, _ in parts):
        view.charges[patient] = [charge for charge in charges if charge.open]


EFFECTS: dict[str, Callable[[dict[str, Any], View, Changes], None]] = {
    "PaymentNotice": _pay,
    "QuestionnaireResponse": notes.place,
}
