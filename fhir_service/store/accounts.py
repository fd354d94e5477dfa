"""Recompute accounts and allocations in the store from charges and payments."""

from collections.abc import Collection

from sqlalchemy import BigInteger, Connection, cast, delete, func, insert, literal, select, union_all, update

from fhir_service.interface.billing import Charge, allocate, in_order
from fhir_service.store.tables import ACCOUNT, ALLOCATION, BODIES, CHARGE

PAYMENT = BODIES["PaymentNotice"]


def sum_anew(connection: Connection) -> None:
    """Set `paid` of each account to the sum of its payments, and of each charge to the sum of its allocations."""
    for paid, key, part, of in (
        (ACCOUNT.c.paid, ACCOUNT.c.patient, PAYMENT.c.cents, PAYMENT.c.request),
        (CHARGE.c.paid, CHARGE.c.claim, ALLOCATION.c.cents, ALLOCATION.c.claim),
    ):
        found = select(of.label("key"), cast(func.sum(part), BigInteger).label("paid")).group_by(of).subquery()
        behind = (key == found.c.key) & (paid != found.c.paid)
        connection.execute(update(paid.table).where(behind).values(paid=found.c.paid))


def reallocate(connection: Connection, patients: Collection[str]) -> None:
    """Make the accounts of these patients again, and allocate their payments to their charges in stored order."""
    connection.execute(delete(ACCOUNT).where(ACCOUNT.c.patient.in_(patients)))
    charged = select(CHARGE.c.patient.label("patient"), CHARGE.c.cents.label("charged"), literal(0).label("paid"))
    paid = select(PAYMENT.c.request, literal(0), PAYMENT.c.cents).where(PAYMENT.c.request.in_(patients))
    sums = union_all(charged.where(CHARGE.c.patient.in_(patients)), paid).subquery()
    accounts = select(sums.c.patient, func.sum(sums.c.charged), func.sum(sums.c.paid)).group_by(sums.c.patient)
    connection.execute(insert(ACCOUNT).from_select(["patient", "charged", "paid"], accounts))
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
        {"payment": payment.id, "claim": charge.claim, "cents": cents}
        for payment in payments
        for charge, cents in allocate(payment.cents, charges, payment.claim)
    ]
    connection.execute(delete(ALLOCATION).where(ALLOCATION.c.payment.in_([payment.id for payment in payments])))
    if rows:
        connection.execute(insert(ALLOCATION), rows)
    for charge in charges:
        connection.execute(update(CHARGE).where(CHARGE.c.claim == charge.claim).values(paid=charge.paid))
