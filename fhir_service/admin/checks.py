"""Check that a store agrees with itself: balances, allocations, references, indexes, notes.

There are two kinds of check: a statement that finds the wrong rows, and a pass over stored bodies, a page at a time.
All run in one transaction, so that a service may go on writing. Findings hold ids, never content.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, select, text

from fhir_service.admin.body_checks import bodies_agree, chunks, records_agree
from fhir_service.admin.findings import MOST, Finding, Found
from fhir_service.interface.billing import Charge, allocate, in_order
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.store.store import Store
from fhir_service.store.tables import ALLOCATION, BODIES, CHARGE, snake


def check_store(store: Store, site: Site) -> list[Finding]:
    """Return everything that is wrong with a store, and the notices."""
    with store.read(sums=True) as connection:
        found: list[Finding] = []
        for kind, function in _CHECKS.items():
            found += _bounded(kind, function(connection, site))
        return found


def _bounded(kind: str, found: Found) -> list[Finding]:
    """Return the first findings, damage before notices, and a line if there are more."""
    damage: list[Finding] = []
    notices: list[Finding] = []
    more = False
    for finding in found:
        kept = notices if finding.notice else damage
        more = more or len(kept) == MOST
        if len(kept) < MOST:
            kept.append(finding)
    rest = [Finding(kind, "...", f"there are more; the first {MOST} are shown", not damage)] if more else []
    return damage + notices + rest


# --- Checks that are one statement: what they give is where it is wrong -----------------------------

_PAYMENT, _RESPONSE = snake("PaymentNotice"), snake("QuestionnaireResponse")
_ALL_SEQS = " UNION ALL ".join(f"SELECT seq FROM {table.name}" for table in BODIES.values())
_CHANGEABLE = " UNION ALL ".join(
    f"SELECT '{name}/' || id AS reference, version - 1 AS missing FROM {BODIES[name].name}"
    for name, resource in RESOURCES.items()
    if "create" in resource.interactions
)
_WRITABLE = " OR ".join(f"reference LIKE '{name}/%'" for name, r in RESOURCES.items() if "create" in r.interactions)

_STATEMENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "balance": (
        (
            "the balance is not the charges less the payments",
            f"""SELECT 'Patient/' || patient FROM (
                    SELECT patient, cents AS charged, 0 AS paid FROM charge
                    UNION ALL SELECT request, 0, cents FROM {_PAYMENT}
                    UNION ALL SELECT patient, -charged, -paid FROM account
                ) AS entries GROUP BY patient HAVING sum(charged) <> 0 OR sum(paid) <> 0""",
        ),
        (
            "the amount paid of the charge is below zero or above the charge",
            "SELECT 'Claim/' || claim FROM charge WHERE paid < 0 OR paid > cents",
        ),
    ),
    "allocation": (
        (
            "the amount paid of the charge differs from the sum of its allocations",
            """SELECT 'Claim/' || claim FROM (
                   SELECT claim, paid AS cents FROM charge UNION ALL SELECT claim, -cents FROM allocation
               ) AS entries GROUP BY claim HAVING sum(cents) <> 0""",
        ),
        (
            "more is allocated than was paid",
            f"""SELECT 'PaymentNotice/' || a.payment FROM allocation AS a LEFT JOIN {_PAYMENT} AS p ON p.id = a.payment
                GROUP BY a.payment HAVING sum(a.cents) > coalesce(max(p.cents), 0) OR min(a.cents) <= 0""",
        ),
        (
            "the payment is allocated to a charge that is missing, or of another patient",
            f"""SELECT 'PaymentNotice/' || a.payment FROM allocation AS a JOIN {_PAYMENT} AS p ON p.id = a.payment
                LEFT JOIN charge AS c ON c.claim = a.claim WHERE c.patient IS DISTINCT FROM p.request""",
        ),
    ),
    "charge": (
        (
            "the charge has no Claim, or a Claim of another patient",
            """SELECT 'Claim/' || c.claim FROM charge AS c LEFT JOIN record AS r ON r.reference = 'Claim/' || c.claim
               WHERE r.patient IS DISTINCT FROM c.patient""",
        ),
    ),
    "note": (
        (
            "the encounter has more than one note",
            """SELECT 'Encounter/' || encounter FROM note WHERE encounter IS NOT NULL
               GROUP BY encounter HAVING count(*) > 1""",
        ),
        (
            "the encounter has no note, or one of another encounter or patient",
            """SELECT r.reference FROM record AS r LEFT JOIN note AS n ON n.id = r.note
               WHERE r.type = 'Encounter' AND ('Encounter/' || n.encounter IS DISTINCT FROM r.reference
               OR n.patient IS DISTINCT FROM r.patient)""",
        ),
        (
            "the note's encounter is missing or has another note",
            """SELECT 'note ' || n.id FROM note AS n LEFT JOIN record AS r ON r.reference = 'Encounter/' || n.encounter
               WHERE n.encounter IS NOT NULL AND r.note IS DISTINCT FROM n.id""",
        ),
        (
            "the note has an unknown state",
            "SELECT 'note ' || id FROM note WHERE state NOT IN ('open', 'cancelled', 'deleted')",
        ),
        (
            "the note belongs to a patient who is missing",
            """SELECT 'note ' || n.id FROM note AS n LEFT JOIN record AS r ON r.reference = 'Patient/' || n.patient
               WHERE r.reference IS NULL""",
        ),
        (
            "the response is in a note that is missing, or of another patient or encounter",
            f"""SELECT 'QuestionnaireResponse/' || q.id FROM {_RESPONSE} AS q LEFT JOIN note AS n ON n.id = q.note
                WHERE n.patient IS DISTINCT FROM q.patient""",
        ),
    ),
    "questionnaire": (
        (
            "the response answers a questionnaire that is missing",
            f"""SELECT 'QuestionnaireResponse/' || r.id FROM {_RESPONSE} AS r
                LEFT JOIN questionnaire AS q ON q.id = r.questionnaire WHERE q.id IS NULL""",
        ),
        (
            "another active questionnaire has the same name",
            """SELECT 'Questionnaire/' || min(id) FROM questionnaire WHERE status = 'active'
               GROUP BY name HAVING count(*) > 1""",
        ),
    ),
    "version": (
        (
            "several resources have this number",
            f"SELECT 'seq ' || seq FROM ({_ALL_SEQS}) AS seqs GROUP BY seq HAVING count(*) > 1",
        ),
        (
            "the history is not complete",
            f"""SELECT reference FROM (
                    SELECT reference, missing FROM ({_CHANGEABLE}) AS now
                    UNION ALL SELECT reference, -1 FROM history WHERE {_WRITABLE}
                ) AS versions GROUP BY reference HAVING sum(missing) <> 0""",
        ),
    ),
    "document": (
        (
            "the document's report is missing",
            """SELECT DISTINCT 'DiagnosticReport/' || d.report FROM document AS d
               LEFT JOIN diagnostic_report AS r ON r.id = d.report WHERE r.id IS NULL""",
        ),
    ),
    "client": (
        (
            "a token's client is missing or revoked",
            """SELECT DISTINCT 'client ' || t.client FROM token AS t LEFT JOIN client AS c ON c.id = t.client
               WHERE c.id IS NULL OR c.revoked_at IS NOT NULL""",
        ),
    ),
}


def _statements(kind: str) -> Callable[[Connection, Site], Found]:
    def run(connection: Connection, _: Site) -> Found:
        for says, sql in _STATEMENTS[kind]:
            for (where,) in connection.execute(
                text(f"SELECT * FROM ({sql}) AS found ORDER BY 1 LIMIT {MOST + 1}")
            ).all():
                yield Finding(kind, where, says)

    return run


# --- Allocations, made anew -----------------------------------------------------------------------


def _allocations(connection: Connection, _: Site) -> Found:
    """Check that each patient's payments are allocated to the oldest charges first."""
    payment = BODIES["PaymentNotice"]
    patients = sorted(
        {
            row[0]
            for table in (CHARGE.c.patient, payment.c.request)
            for row in connection.execute(select(table).distinct())
        }
    )
    for chunk in chunks(patients):
        charges = _by(connection, select(CHARGE).where(CHARGE.c.patient.between(chunk[0], chunk[-1])), "patient")
        query = select(payment.c.request, payment.c.id, payment.c.cents, payment.c.claim, payment.c.seq)
        payments = _by(connection, query.where(payment.c.request.between(chunk[0], chunk[-1])), "request")
        rows = select(payment.c.request, ALLOCATION).join(ALLOCATION, ALLOCATION.c.payment == payment.c.id)
        stored = _by(connection, rows.where(payment.c.request.between(chunk[0], chunk[-1])), "request")
        for patient in chunk:
            kept = sorted((row.payment, row.claim, row.cents) for row in stored.get(patient, ()))
            if kept != _made_anew(charges.get(patient, []), payments.get(patient, [])):
                yield Finding("allocation", f"Patient/{patient}", "the allocations are not oldest charge first")


def _made_anew(charges: list[Row[Any]], payments: list[Row[Any]]) -> list[tuple[str, str, int]]:
    owed = in_order(Charge(row.claim, row.created, row.cents) for row in charges)
    return sorted(
        (payment.id, charge.claim, cents)
        for payment in sorted(payments, key=lambda row: row.seq)
        for charge, cents in allocate(payment.cents, owed, payment.claim)
    )


def _by(connection: Connection, query: Any, column: str) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(getattr(row, column), []).append(row)
    return found


_CHECKS: dict[str, Callable[[Connection, Site], Found]] = {kind: _statements(kind) for kind in _STATEMENTS} | {
    "allocations": _allocations,
    "bodies": bodies_agree,
    "records": records_agree,
}
