"""Payments that the ledger knows to be at the target: what a search of the target may not show yet."""

from collections.abc import Iterator, Sequence

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.states import LANDED


def payments_made(ledger: LedgerAccess, target: str, patients: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield patient, resource id and cents of each payment that was made for these patients."""
    c = t.record.c
    query = select(c.patient_id, c.resource_id, c.amount_cents).where(
        c.target == target, c.resource_type == "PaymentNotice", c.state.in_(LANDED), c.resource_id.is_not(None)
    )
    for patient, resource_id, cents in ledger.read_of(query, c.patient_id, patients):
        yield patient, resource_id, cents or 0
