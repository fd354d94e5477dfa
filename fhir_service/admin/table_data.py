"""Data for tables that the interface does not show: charges with their payments, and patients by sex and year.

Each is a file of NDJSON with the least that the tables need: no name and no birth date.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Connection, func, select

from fhir_service.store.store import Store
from fhir_service.store.tables import ALLOCATION, BODIES, CHARGE, RECORD

PAYMENT = BODIES["PaymentNotice"]
AT_ONCE = 1_000


def charges(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield each charge, in cents, with the sum that payments have covered, and the sum of its copayments."""
    copaid = (
        select(PAYMENT.c.claim, func.sum(PAYMENT.c.cents).label("cents"))
        .where(PAYMENT.c.claim.is_not(None))
        .group_by(PAYMENT.c.claim)
        .subquery()
    )
    paid = (
        select(ALLOCATION.c.claim, func.sum(ALLOCATION.c.cents).label("cents")).group_by(ALLOCATION.c.claim).subquery()
    )
    found = (
        select(
            *(CHARGE.c[name] for name in ("claim", "patient", "created", "cents")),
            func.coalesce(paid.c.cents, 0).label("paid"),
            func.coalesce(copaid.c.cents, 0).label("copaid"),
        )
        .outerjoin(paid, CHARGE.c.claim == paid.c.claim)
        .outerjoin(copaid, CHARGE.c.claim == copaid.c.claim)
        .order_by(CHARGE.c.claim)
    )
    for row in connection.execute(found):
        yield {
            "claim_id": row.claim,
            "patient_id": row.patient,
            "created": row.created,
            "cents": int(row.cents),
            "paid_cents": int(row.paid),
            "copaid_cents": int(row.copaid),
        }


def patients(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield each patient: id, gender and year of birth."""
    found = select(RECORD.c.reference, RECORD.c.body).where(RECORD.c.type == "Patient").order_by(RECORD.c.reference)
    for row in connection.execute(found.execution_options(yield_per=AT_ONCE)):
        body = orjson.loads(row.body)
        year = str(body.get("birthDate", ""))[:4]
        yield {
            "id": row.reference.partition("/")[2],
            "gender": body.get("gender"),
            "birthYear": int(year) if year.isdecimal() else None,
        }


TOLD = {"charges": charges, "patients": patients}


def tell(store: Store, name: str, file: Path) -> int:
    """Write the rows of one of `TOLD` to a file; return their number."""
    count = 0
    with store.read() as connection, file.open("wb") as out:
        for row in TOLD[name](connection):
            count += 1
            out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    return count
