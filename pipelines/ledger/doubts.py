"""Rows in doubt in the ledger: list them, and find what was at the target before they were sent."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain

from sqlalchemy import bindparam, delete, func, select

from pipelines.ledger import states
from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.lease import HeldRight
from pipelines.ledger.rows import KnownRecord, RecordRow, Sighting
from pipelines.ledger.verbs import verb

DOUBT_SENT = """
UPDATE record SET state = 'in_doubt', finished_at = ?
WHERE stream_id = ? AND key = ? AND generation = ? AND state = 'sending'"""

WITNESSES = 2
"""The number of records, of the batch and of any batch, that test if a search finds what is at the target."""


def doubtful(ledger: LedgerAccess, target: str, batch_id: str | None = None) -> list[RecordRow]:
    """Return the records in doubt of a target, or of one of its batches, in file order."""
    return undecided(ledger, target, batch_id, ("in_doubt",))


def undecided(
    ledger: LedgerAccess, target: str, batch_id: str | None = None, among: Sequence[str] = states.UNDECIDED
) -> list[RecordRow]:
    """Return the records of a target, or of one of its batches, whose outcome is open, in file order. among: states."""
    record = t.record.c
    query = select(*(record[name] for name in RecordRow._fields)).where(
        record.target == target, record.state.in_(among)
    )
    if batch_id is not None:
        here = (t.of_batch(t.records, target, batch_id), t.records.c.state.in_(among))
        if ledger.value(select(t.records.c.line).where(*here).limit(1)) is None:
            return []
        query = query.where(record.batch_id == batch_id)
    return list(map(RecordRow._make, ledger.read(query.order_by(record.batch_id, record.line))))


@verb
def doubt_sent(
    ledger: LedgerAccess, lease: HeldRight, source: str, resource_type: str, rows: Collection[tuple[str, int]]
) -> None:
    """Put in doubt the given records, by key and generation, that are still `sending`. Raises `LeaseLost`."""
    now, stream = ledger.now(), ledger.stream(lease.target, source, resource_type)
    with ledger.writing(lease):
        ledger.write(DOUBT_SENT, [(now, stream, key, generation) for key, generation in rows])


def known_resources(
    ledger: LedgerAccess, target: str, resource_type: str, doubts: Collection[RecordRow]
) -> dict[str | None, set[str]]:
    """Return the resources that the ledger knows, also those taken back, by each patient of these doubts.

    A resource that a doubt itself names is left out unless it was to be changed, because the look-up must judge it.
    """
    found: dict[str | None, set[str]] = defaultdict(set)
    patients = {doubt.patient_id for doubt in doubts}
    looked_at = {(doubt.source, doubt.key, doubt.resource_id) for doubt in doubts if not doubt.is_change}
    named = sorted(patient for patient in patients if patient is not None)
    with ledger.reading():
        for table in (t.record, t.former):
            c = table.c
            query = select(c.patient_id, c.source, c.key, c.resource_id).where(
                c.target == target, c.resource_type == resource_type, c.resource_id.is_not(None)
            )
            nobodys = ledger.read(query.where(c.patient_id.is_(None))) if None in patients else ()
            for patient_id, *this in chain(ledger.read_of(query, c.patient_id, named), nobodys):
                if table is t.former or tuple(this) not in looked_at:
                    found[patient_id].add(this[-1])
    return found


def sightings(
    ledger: LedgerAccess, target: str, resource_type: str, doubts: Iterable[RecordRow]
) -> dict[str, tuple[datetime | None, frozenset[str] | None] | None]:
    """Return by key the earliest time, by the target's clock, of a resource made for the doubt, and the ids there
    before.

    The value is None if nothing was noted, as for rows sent with an identifier. It is as of the first attempt over all
    generations, since that one may have arrived too. If nothing is noted of that time, it is as of this generation's
    first attempt.
    """
    found: dict[str, tuple[datetime | None, frozenset[str] | None] | None] = {}
    with ledger.reading():
        for doubt in doubts:
            of = (target, resource_type, doubt.patient_id or "")
            tried = (_before(ledger, of, at) for at in (doubt.first_sent_at, doubt.first_attempt_at) if at)
            found[doubt.key] = next((seen for seen in tried if seen), None)
    return found


def made_before(
    ledger: LedgerAccess, target: str, source: str, resource_type: str, batch_id: str
) -> list[tuple[str, int]]:
    """Return key and generation of a few records created at a target: some of the batch, and some of any batch."""
    record = t.records.c
    stream = ledger.stream(target, source, resource_type)
    made = select(record.key, record.generation).where(record.stream_id == stream, record.state == "created")
    queries = [made.where(t.of_batch(t.records, target, batch_id)), made]
    found = [row for query in queries for row in ledger.read(query.limit(WITNESSES))]
    return [(key, generation) for key, generation in dict.fromkeys(map(tuple, found))]


def went_without_name(ledger: LedgerAccess, target: str, resource_type: str, record: KnownRecord) -> bool:
    """True if a record was first sent to the bare interface, so that nothing at the target shows its key."""
    of, at = (target, resource_type, record.patient_id or ""), record.first_attempt_at
    return at is not None and _before(ledger, of, at) is not None


_NOTED = t.sighting.c
_LAST_BEFORE = (
    select(*(_NOTED[name] for name in Sighting._fields))
    .where(_NOTED.target == bindparam("target"), _NOTED.resource_type == bindparam("resource_type"))
    .where(_NOTED.patient_id == bindparam("patient_id"), _NOTED.noted_at <= bindparam("at"))
    .order_by(_NOTED.noted_at.desc())
    .limit(1)
)
"""Selects the last sighting of a patient. Built once, since a load after a kill asks it for each of its rows."""


def _before(
    ledger: LedgerAccess, of: tuple[str, str, str], at: str
) -> tuple[datetime | None, frozenset[str] | None] | None:
    """Return the last sighting of a patient at or before a moment; None if there is none."""
    target, resource_type, patient_id = of
    newest = ledger.read(_LAST_BEFORE, target=target, resource_type=resource_type, patient_id=patient_id, at=at)
    if not newest:
        return None
    seen = Sighting._make(newest[0])
    ids = None if seen.ids is None else frozenset(seen.ids.split())
    since = None if seen.ahead_us is None else datetime.fromisoformat(at) + timedelta(microseconds=seen.ahead_us)
    return since, ids


@verb
def forget_sightings(ledger: LedgerAccess, target: str, resource_type: str) -> None:
    """Remove the sightings of patients without an undecided record, and those for records without a patient alike."""
    record, sighting = t.record.c, t.sighting.c
    undecided = select(func.coalesce(record.patient_id, "")).where(
        record.target == target, record.resource_type == resource_type, record.state.in_(states.UNDECIDED)
    )
    ledger.execute(
        delete(t.sighting).where(
            sighting.target == target,
            sighting.resource_type == resource_type,
            sighting.patient_id.not_in(undecided),
        )
    )
