"""Charges, balances and how payments are applied to charges. Amounts are cents.

The arithmetic is pure; `reallocate` makes the rows of some patients anew from it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, literal, select, update

from fhir_service.store.tables import ACCOUNT, ALLOCATION, BODIES, CHARGE

PAYMENT = BODIES["PaymentNotice"]


@dataclass(slots=True)
class Charge:
    """One loaded Claim as money owed: `created` orders charges, `paid` is what payments have covered."""

    claim: str
    created: str
    cents: int
    paid: int = 0

    @property
    def open(self) -> int:
        return self.cents - self.paid


@dataclass(slots=True)
class Account:
    """What a patient was charged and has paid; `fresh` when the store has no row of it yet."""

    charged: int = 0
    paid: int = 0
    fresh: bool = False

    @property
    def balance(self) -> int:
        return self.charged - self.paid


def in_order(charges: Iterable[Charge]) -> list[Charge]:
    """Oldest first, then by id (PAY-CREATE-09, PAY-CREATE-10)."""
    return sorted(charges, key=lambda charge: (charge.created, charge.claim))


def allocate(cents: int, charges: list[Charge], claim: str | None = None) -> list[tuple[str, int]]:
    """Applies a payment to charges that are in order, a copayment to its claim first; marks them paid.

    Gives (claim, cents) for each charge that it reaches. What is left over waits for later charges.
    """
    ordered = sorted(charges, key=lambda charge: charge.claim != claim) if claim else charges
    rows = []
    for charge in ordered:
        part = min(cents, charge.open)
        if part > 0:
            charge.paid += part
            cents -= part
            rows.append((charge.claim, part))
        if not cents:
            break
    return rows


def reallocate(connection: Connection, patients: Collection[str]) -> None:
    """Makes the accounts of these patients anew, and applies their payments to their charges in the order stored."""
    connection.execute(delete(ACCOUNT).where(ACCOUNT.c.patient.in_(patients)))
    charged = select(CHARGE.c.patient, func.sum(CHARGE.c.cents), literal(0)).where(CHARGE.c.patient.in_(patients))
    connection.execute(insert(ACCOUNT).from_select(["patient", "charged", "paid"], charged.group_by(CHARGE.c.patient)))
    paying = connection.execute(select(PAYMENT.c.request).where(PAYMENT.c.request.in_(patients)).distinct())
    for patient in sorted(paying.scalars()):
        _reallocate(connection, patient)


def _reallocate(connection: Connection, patient: str) -> None:
    charges = in_order(
        Charge(row.claim, row.created, row.cents)
        for row in connection.execute(select(CHARGE).where(CHARGE.c.patient == patient))
    )
    payments = connection.execute(
        select(PAYMENT.c.id, PAYMENT.c.cents, PAYMENT.c.claim)
        .where(PAYMENT.c.request == patient)
        .order_by(PAYMENT.c.seq)
    ).all()
    rows = [
        {"payment": payment.id, "claim": claim, "cents": cents}
        for payment in payments
        for claim, cents in allocate(payment.cents, charges, payment.claim)
    ]
    connection.execute(delete(ALLOCATION).where(ALLOCATION.c.payment.in_([payment.id for payment in payments])))
    if rows:
        connection.execute(insert(ALLOCATION), rows)
    for charge in charges:
        connection.execute(update(CHARGE).where(CHARGE.c.claim == charge.claim).values(paid=charge.paid))
    paid = sum(payment.cents for payment in payments)
    if not charges:
        connection.execute(insert(ACCOUNT), [{"patient": patient, "charged": 0, "paid": paid}])
    connection.execute(update(ACCOUNT).where(ACCOUNT.c.patient == patient).values(paid=paid))
