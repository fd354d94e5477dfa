"""What a new resource brings about beside its own row: payments reach charges, responses make notes."""

from collections.abc import Callable
from typing import Any

from fhir_service import billing, notes
from fhir_service.interface.datatypes import id_of
from fhir_service.store.view import Changes, View


def _pay(stored: dict[str, Any], view: View, changes: Changes) -> None:
    """Books a payment on the patient's account and applies it to open charges."""
    patient = id_of(stored["request"]["reference"])
    cents = int(stored["amount"]["value"] * 100)
    parts = [part for extension in stored.get("extension", ()) for part in extension["extension"]]
    claim = id_of(parts[0]["valueReference"]["reference"]) if parts else None
    charges = view.charges.get(patient, [])
    rows = billing.allocate(cents, charges, claim)
    account = view.account(patient)
    account.paid += cents
    reached = {claim for claim, _ in rows}
    changes.pay(stored["id"], patient, account, [charge for charge in charges if charge.claim in reached], rows)
    view.charges[patient] = [charge for charge in charges if charge.open]


EFFECTS: dict[str, Callable[[dict[str, Any], View, Changes], None]] = {
    "PaymentNotice": _pay,
    "QuestionnaireResponse": notes.place,
}
