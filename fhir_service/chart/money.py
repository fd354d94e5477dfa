"""A patient's account in cents: the balance, receipts with their charges, and charges with their payments."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from fhir_service.chart.paging import ListPage
from fhir_service.store.tables import ACCOUNT, ALLOCATION, BODIES, CHARGE

PAYMENT = BODIES["PaymentNotice"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A payment: the Claim of a copayment, the balance after it, `(claim, cents)` applied, and what is left over."""

    id: str
    created: Any
    cents: int
    claim: str | None
    balance: int
    applied: tuple[tuple[str, int], ...]

    @property
    def waiting(self) -> int:
        return self.cents - sum(cents for _, cents in self.applied)


@dataclass(frozen=True, slots=True)
class PaidCharge:
    """A charge, and the `(payment, time, cents)` that paid for it."""

    claim: str
    created: str
    cents: int
    paid: int
    payments: tuple[tuple[str, Any, int], ...]

    @property
    def open(self) -> int:
        return self.cents - self.paid


@dataclass(frozen=True, slots=True)
class PatientAccount:
    """The totals of charges and payments, with a page of receipts and a page of charges."""

    charged: int
    paid: int
    receipts: list[Receipt]
    receipts_page: ListPage
    charges: list[PaidCharge]
    charges_page: ListPage

    @property
    def balance(self) -> int:
        return self.charged - self.paid


def account(connection: Connection, patient: str, receipts: ListPage, charges: ListPage) -> PatientAccount:
    """Return the account of a patient: newest receipts first, charges in the order in which they are paid."""
    charged = connection.execute(select(ACCOUNT.c.charged).where(ACCOUNT.c.patient == patient)).scalar() or 0
    received = select(func.count(), func.coalesce(func.sum(PAYMENT.c.cents), 0)).where(PAYMENT.c.request == patient)
    counted, paid = connection.execute(received).one()
    owed = connection.execute(select(func.count()).where(CHARGE.c.patient == patient)).scalar_one()
    receipts, charges = receipts.of(counted), charges.of(owed)
    return PatientAccount(
        charged,
        int(paid),
        _receipts(connection, patient, charged, receipts),
        receipts,
        _charges(connection, patient, charges),
        charges,
    )


def _receipts(connection: Connection, patient: str, charged: int, page: ListPage) -> list[Receipt]:
    """Return a page of receipts. The balance after a receipt counts all charges, even those loaded later."""
    so_far = func.sum(PAYMENT.c.cents).over(order_by=PAYMENT.c.seq)
    payments = select(
        PAYMENT.c.id, PAYMENT.c.seq, PAYMENT.c.updated_at, PAYMENT.c.cents, PAYMENT.c.claim, so_far.label("so_far")
    )
    ordered = payments.where(PAYMENT.c.request == patient).subquery()
    query = select(ordered).order_by(ordered.c.seq.desc()).limit(page.size).offset(page.offset)
    rows = connection.execute(query).all()
    applied: dict[str, list[tuple[str, int]]] = defaultdict(list)
    parts = select(ALLOCATION).where(ALLOCATION.c.payment.in_([row.id for row in rows]))
    for part in connection.execute(parts.join(CHARGE, CHARGE.c.claim == ALLOCATION.c.claim).order_by(*_ORDER)):
        applied[part.payment].append((part.claim, part.cents))
    return [
        Receipt(row.id, row.updated_at, row.cents, row.claim, charged - int(row.so_far), tuple(applied[row.id]))
        for row in rows
    ]


_ORDER = (CHARGE.c.created, CHARGE.c.claim)


def _charges(connection: Connection, patient: str, page: ListPage) -> list[PaidCharge]:
    query = select(CHARGE).where(CHARGE.c.patient == patient).order_by(*_ORDER)
    rows = connection.execute(query.limit(page.size).offset(page.offset)).all()
    paying: dict[str, list[tuple[str, Any, int]]] = defaultdict(list)
    parts = select(ALLOCATION.c.claim, ALLOCATION.c.cents, PAYMENT.c.id, PAYMENT.c.updated_at)
    parts = parts.join(PAYMENT, PAYMENT.c.id == ALLOCATION.c.payment).order_by(PAYMENT.c.seq)
    for part in connection.execute(parts.where(ALLOCATION.c.claim.in_([row.claim for row in rows]))):
        paying[part.claim].append((part.id, part.updated_at, part.cents))
    return [
        PaidCharge(
            row.claim, row.created, row.cents, sum(cents for *_, cents in paying[row.claim]), tuple(paying[row.claim])
        )
        for row in rows
    ]
