"""Payments: a row becomes a PaymentNotice, which is a copayment if the row has a claim."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pipelines.feeds.terms.columns import (
    BuilderContext,
    BuiltRecord,
    Column,
    RecordFault,
    RecordKind,
    ValueFault,
    Values,
    cents,
    id_of,
    refer,
)
from pipelines.feeds.terms.times import micros, resource_micros

COLUMNS = (
    Column("payment_id", "key", "FEED-PAY-01", "PaymentNotice.identifier", required=True),
    Column("patient_id", ("Patient",), "FEED-PAY-02", "PaymentNotice.request", required=True, stand_in="Patient/x"),
    Column("amount", "amount", "FEED-PAY-03", "PaymentNotice.amount", required=True, stand_in="1.00"),
    Column("paid_on", "time", "FEED-PAY-04", "PaymentNotice.created", required=True, stand_in="2000-01-01"),
    Column("claim_id", ("Claim",), "FEED-PAY-05", "PaymentNotice.extension"),
)

UNTIL_SENT = "2000-01-01T00:00:00+00:00"
"""The placeholder for `created` while a body is checked.

The sent body has the time of the first attempt, so that the content hash of a file does not depend on the time of its
import.
"""
REFUND = RecordFault(
    ValueFault(
        "PAY-25",
        "the amount is below zero, as of a refund; the interface takes only payments, so enter it in the chart",
    ),
    "PaymentNotice.amount",
    "amount",
)


def build(key: str | None, rows: Sequence[Values], around: BuilderContext) -> BuiltRecord:
    """Return the PaymentNotice of a row. Values that could not be mapped are left out."""
    (row,) = rows
    if "resource" in row:
        return _whole(key, row)
    patient, amount, claim = row.get("patient_id"), row.get("amount"), row.get("claim_id")
    body: dict[str, Any] = {"created": UNTIL_SENT, "resourceType": "PaymentNotice", "status": "active"}
    if claim:
        nested = {"url": "claim", "valueReference": refer(claim)}
        body["extension"] = [{"url": around.site.copayment, "extension": [nested]}]
    if patient:
        body["request"] = refer(patient)
    if amount:
        body["amount"] = {"value": Decimal(amount), "currency": "USD"}
    body["payment"] = {}
    body["recipient"] = {}
    faults = (REFUND,) if amount and amount.startswith("-") and Decimal(amount) else ()
    at = micros(row.get("paid_on"))
    return BuiltRecord(body, patient and patient[8:], patient or f"payment/{key}", at, cents(amount), faults)


def is_copayment(body: Mapping[str, Any], url: str) -> bool:
    """True if a body is a copayment, which the target may accept above the balance. url: the extension's."""
    return any(extension.get("url") == url for extension in body.get("extension") or ())


def _whole(key: str | None, row: Values) -> BuiltRecord:
    """Return a PaymentNotice that came as a resource, with the placeholder for its time of payment in `created`."""
    body = row["resource"]
    amount = body.get("amount")
    value = amount.get("value") if isinstance(amount, dict) else None
    if row.get("at") is not None:  # a text that is no time stays, and becomes a reject
        body = {"created": None} | body | {"created": UNTIL_SENT}  # created comes first
    patient = id_of(body.get("request"))
    lane = f"Patient/{patient}" if patient else f"payment/{key}"
    faults = (REFUND,) if isinstance(value, Decimal) and value < 0 else ()
    return BuiltRecord(body, patient, lane, None if row.get("at") is None else int(row["at"]), _cents(value), faults)


def whole(resource: dict[str, Any]) -> Values:
    """Return the resource with the time that orders the sending."""
    at = resource_micros(resource.get("created"))
    return {"resource": resource, "at": at}


def _cents(value: Any) -> int | None:
    return cents(f"{value:f}") if isinstance(value, Decimal) and abs(value.adjusted()) < 40 else None


PAYMENTS = RecordKind(
    "payments",
    "PaymentNotice",
    "payment_id",
    COLUMNS,
    build,
    sort="paid_on",
    whole=whole,
    until_sent=f'"created":"{UNTIL_SENT}",',
)
