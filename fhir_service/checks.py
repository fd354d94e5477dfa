"""Whether a store agrees with itself: balances, allocations, references, indexes, notes.

Two kinds of check: a statement that finds the rows that are wrong, and a pass over stored bodies, a page at a time.
All run in one transaction, so that a service may go on writing. Findings hold ids, never content.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Table, null, select, text, tuple_

from fhir_service.billing import Charge, allocate, in_order
from fhir_service.interface.datatypes import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Resource
from fhir_service.loadable import claims
from fhir_service.loadable.examining import PATIENT_ELEMENTS
from fhir_service.loadable.reading import Flaw
from fhir_service.loadable.references import AUTOMATION, patient_of, targets
from fhir_service.store.store import Store
from fhir_service.store.tables import (
    ALLOCATION,
    BODIES,
    CHARGE,
    RECORD,
    SIDES,
    digest,
    index_values,
    repeating,
    side_values,
    snake,
)

PAGE = 2000
# A store in ruins names this many places of each kind; one more line says that there are others.
MOST = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its kind, where (ids), and what. A notice is worth knowing and no damage."""

    kind: str
    where: str
    text: str
    notice: bool = False


Found = Iterator[Finding]


def check_store(store: Store, site: Site) -> list[Finding]:
    """Everything that is wrong with a store, and the notices."""
    with store.read() as connection:
        found: list[Finding] = []
        for kind, function in _CHECKS.items():
            found += _bounded(kind, function(connection, site))
        return found


def _bounded(kind: str, found: Found) -> list[Finding]:
    """The first findings, damage before notices, and a line that says that there are more."""
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
            "the charge is paid below zero or above its amount",
            "SELECT 'Claim/' || claim FROM charge WHERE paid < 0 OR paid > cents",
        ),
    ),
    "allocation": (
        (
            "what is paid of the charge is not what payments were allocated to it",
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
            "the charge has no Claim, or that of another patient",
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
            "the encounter has no note of its own, or that of another patient",
            """SELECT r.reference FROM record AS r LEFT JOIN note AS n ON n.id = r.note
               WHERE r.type = 'Encounter' AND ('Encounter/' || n.encounter IS DISTINCT FROM r.reference
               OR n.patient IS DISTINCT FROM r.patient)""",
        ),
        (
            "the note is that of an encounter that is missing or has another note",
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
            "the response stands in a note that is missing, or of another patient or encounter",
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
            "two active questionnaires have this one's name",
            """SELECT 'Questionnaire/' || min(id) FROM questionnaire WHERE status = 'active'
               GROUP BY name HAVING count(*) > 1""",
        ),
    ),
    "version": (
        (
            "two resources have this number",
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
    """The allocations of each patient are those that oldest charge first gives."""
    payment = BODIES["PaymentNotice"]
    patients = sorted(
        {
            row[0]
            for table in (CHARGE.c.patient, payment.c.request)
            for row in connection.execute(select(table).distinct())
        }
    )
    for chunk in _chunks(patients):
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
        (payment.id, claim, cents)
        for payment in sorted(payments, key=lambda row: row.seq)
        for claim, cents in allocate(payment.cents, owed, payment.claim)
    )


def _by(connection: Connection, query: Any, column: str) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(getattr(row, column), []).append(row)
    return found


# --- Passes over the bodies -----------------------------------------------------------------------


def _bodies(connection: Connection, site: Site) -> Found:
    """Each stored resource: its columns and side tables say what its body says, and what it names is stored."""
    for name, resource in RESOURCES.items():
        yield from _orphans(connection, resource)
        for rows in _pages(connection, BODIES[name], "seq"):
            sides = _stored_sides(connection, resource, [row.seq for row in rows])
            named: dict[str, list[str]] = {}
            for row in rows:
                where = f"{name}/{row.id}"
                stored = _parsed(row.body)
                if stored is None or (stored.get("resourceType"), stored.get("id")) != (name, row.id):
                    yield Finding("body", where, "the body is not that of the resource")
                    continue
                yield from _disagreements(resource, row, stored, where, sides)
                named[where] = list(targets(stored, site))
            yield from _unresolved(connection, named, notices=name == "DiagnosticReport")


def _disagreements(
    resource: Resource, row: Row[Any], stored: dict[str, Any], where: str, sides: dict[tuple[str, int], list[Any]]
) -> Found:
    """The columns and side rows that say something else than the body."""
    try:
        values, expected = index_values(resource, stored), side_values(resource, stored)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        yield Finding("body", where, "the body is not that of the resource")
        return
    for column, value in values.items():
        if not _same(getattr(row, column), value):
            yield Finding("index", where, f"the column {column} is not what the body says")
    for param in repeating(resource):
        codes = sorted(expected.get(param.name, ()), key=str)
        if sorted(sides.get((param.name, row.seq), ()), key=str) != codes:
            yield Finding(
                "index", where, f"the table {SIDES[resource.name, param.name].name} is not what the body says"
            )


def _same(column: Any, value: Any) -> bool:
    if isinstance(column, datetime) and isinstance(value, datetime):
        return column.timestamp() == value.timestamp()
    return bool(column == value)


def _stored_sides(connection: Connection, resource: Resource, seqs: Sequence[int]) -> dict[tuple[str, int], list[Any]]:
    """The rows of the side tables of a page of resources, by parameter and number."""
    found: dict[tuple[str, int], list[Any]] = {}
    for param in repeating(resource):
        table = SIDES[resource.name, param.name]
        digests = table.c.digest if "digest" in table.c else null()
        query = select(table.c.seq, table.c.system, table.c.code, digests.label("digest"))
        for seq, system, code, digested in connection.execute(query.where(table.c.seq.between(seqs[0], seqs[-1]))):
            wrong = digested is not None and digested != digest(code or "")
            found.setdefault((param.name, seq), []).append((system, code, "digest") if wrong else (system, code))
    return found


def _orphans(connection: Connection, resource: Resource) -> Found:
    """Side rows of resources that are not there."""
    body = BODIES[resource.name]
    for param in repeating(resource):
        side = SIDES[resource.name, param.name]
        query = select(side.c.seq).distinct().outerjoin(body, body.c.seq == side.c.seq).where(body.c.seq.is_(None))
        for (seq,) in connection.execute(query.order_by(side.c.seq).limit(MOST + 1)).all():
            yield Finding("index", f"{side.name} {seq}", "the row belongs to no resource")


def _records(connection: Connection, site: Site) -> Found:
    """Each loaded record: its body is readable, its patient is stored, its charge is what the Claim says."""
    for rows in _pages(connection, RECORD, "reference"):
        charges = _charges(connection, rows)
        named: dict[str, list[str]] = {}
        needed: dict[str, list[str]] = {}
        for row in rows:
            kind, _, id = row.reference.partition("/")
            body = _parsed(row.body)
            if body is None or (body.get("resourceType"), body.get("id"), row.type) != (kind, id, kind):
                yield Finding("body", row.reference, "the body is not that of the record")
                continue
            yield from _record_disagreements(row, body, charges, site)
            named[row.reference] = list(targets(body, site))
            needed[row.reference] = [f"Patient/{row.patient}"] if row.patient else []
        yield from _unresolved(connection, needed, notices=False)
        yield from _unresolved(connection, named, notices=True, besides=needed)


def _record_disagreements(
    row: Row[Any], body: dict[str, Any], charges: dict[str, tuple[str, int]], site: Site
) -> Found:
    flaws: list[Flaw] = []
    element = PATIENT_ELEMENTS.get(row.type, ("", False))[0]
    if row.patient != (patient_of(body, element, site, False, flaws) if element else None):
        yield Finding("index", row.reference, "the column patient is not what the body says")
    if row.type == "Claim":
        charged = claims.charge(body, flaws)
        if charges.get(body["id"]) != ((charged.created, charged.cents) if charged else None):
            yield Finding("charge", row.reference, "the charge is not what the Claim says")


def _charges(connection: Connection, rows: Sequence[Row[Any]]) -> dict[str, tuple[str, int]]:
    ids = [row.reference.partition("/")[2] for row in rows if row.type == "Claim"]
    query = select(CHARGE.c.claim, CHARGE.c.created, CHARGE.c.cents).where(CHARGE.c.claim.in_(ids))
    return {claim: (created, cents) for claim, created, cents in connection.execute(query)} if ids else {}


def _unresolved(
    connection: Connection, named: dict[str, list[str]], notices: bool, besides: dict[str, list[str]] | None = None
) -> Found:
    """The references of a page whose targets are not stored; those in `besides` are somebody else's matter."""
    stored = _stored(connection, {target for found in named.values() for target in found})
    for where, found in named.items():
        for target in sorted(set(found) - stored - set((besides or {}).get(where, ()))):
            notice = notices and not target.startswith("Patient/")
            yield Finding("reference", where, f"{target} is not stored", notice)


def _stored(connection: Connection, wanted: set[str]) -> set[str]:
    """Those of these references (`Type/id`) that are stored."""
    found = {AUTOMATION}
    for chunk in _chunks(sorted(wanted)):
        found.update(connection.execute(select(RECORD.c.reference).where(RECORD.c.reference.in_(chunk))).scalars())
        for name, table in BODIES.items():
            ids = [target.partition("/")[2] for target in chunk if target.startswith(f"{name}/")]
            if ids:
                shown = connection.execute(select(table.c.id).where(table.c.id.in_(ids))).scalars()
                found.update(f"{name}/{id}" for id in shown)
    return found


def _parsed(body: str) -> dict[str, Any] | None:
    try:
        found = parse_json(body)
    except Malformed:
        return None
    return found if isinstance(found, dict) else None


def _pages(connection: Connection, table: Table, key: str) -> Iterator[list[Row[Any]]]:
    """All rows of a table in the order of a key, a page at a time."""
    column, last = table.c[key], None
    # Rows with the same key (a damaged store) must not be passed over: the primary key goes along.
    unique = next(iter(table.primary_key.columns))
    while True:
        query = select(table).order_by(column, unique).limit(PAGE)
        query = query if last is None else query.where(tuple_(column, unique) > last)
        rows = list(connection.execute(query))
        if not rows:
            return
        yield rows
        last = (getattr(rows[-1], key), getattr(rows[-1], unique.name))


def _chunks(values: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, PAGE)):
        yield chunk


_CHECKS: dict[str, Callable[[Connection, Site], Found]] = {kind: _statements(kind) for kind in _STATEMENTS} | {
    "allocations": _allocations,
    "bodies": _bodies,
    "records": _records,
}
