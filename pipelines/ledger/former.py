"""What records were before: kept when one is updated, superseded or taken back, restored when that was refused.

`record` holds each key once, in its newest generation; its earlier versions are here, each with its resource.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, select, update

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.lease import Lease
from pipelines.ledger.rows import Intent
from pipelines.ledger.states import UNDECIDED
from pipelines.ledger.tables import LedgerError
from pipelines.ledger.verbs import verb

KEYS_A_QUERY = 400
COLUMNS = [column.name for column in t.record.columns]
OF_KEY = "target = ? AND source = ? AND resource_type = ? AND key = ?"
TERM = "(SELECT term_id FROM term WHERE text = ?)"
OF_ENTRY = f"target = {TERM} AND source = {TERM} AND resource_type = {TERM} AND key = ?"
KEEP = f"""
INSERT INTO former ({", ".join(COLUMNS)}, version, fate, kept_at)
SELECT {", ".join(COLUMNS)}, (SELECT COALESCE(MAX(version), 0) + 1 FROM former WHERE {OF_KEY}),
  CAST(? AS TEXT), CAST(? AS TEXT)
FROM record WHERE {OF_KEY} AND generation = ?"""
KEEP_APPEARANCE = f"""
INSERT INTO appearance (target, batch_id, line, source, resource_type, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, http_status, finished_at)
SELECT target, batch_id, line, source, resource_type, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, http_status, finished_at
FROM entry WHERE {OF_ENTRY} AND generation = ? AND NOT (batch_id = {TERM} AND line = ?)
ON CONFLICT DO NOTHING"""
CHANGE = f"""
UPDATE entry SET generation = ?, batch_id = {TERM}, line = ?, content_hash = ?, feed_hash = {TERM}, patient_id = ?,
  source_at = ?, amount_cents = ?, first_attempt_at = ?, state = 'sending', attempts = attempts + 1,
  resource_id = CASE WHEN generation = ? THEN resource_id END, http_status = NULL, finished_at = NULL
WHERE {OF_ENTRY} AND generation = ?"""
RAISE = f"""
UPDATE entry SET generation = generation + 1, state = 'planned', resource_id = NULL, http_status = NULL,
  finished_at = NULL, first_attempt_at = NULL
WHERE {OF_ENTRY} AND generation = ?"""
FATE = f"UPDATE former SET fate = ? WHERE {OF_KEY} AND version = ?"
UNDO = f"UPDATE entry SET state = 'undone', finished_at = ? WHERE {OF_ENTRY} AND generation = ?"


class Former(NamedTuple):
    """An earlier version of a record, and the fate of the resource it had."""

    source: str
    resource_type: str
    key: str
    version: int
    generation: int
    batch_id: str
    line: int
    state: str
    resource_id: str | None
    patient_id: str | None
    fate: str


def first_outcomes(connection: Connection, target: str, batch_id: str) -> Select[Any]:
    """Rows of the batch's records and their cents by the first outcome that each had there."""
    record, former = t.record.c, t.former.c
    changed = select(former.key).where(former.target == target, former.batch_id == batch_id).limit(1)
    if connection.execute(changed).first() is None:
        plain = select(record.state, func.count(), func.coalesce(func.sum(record.amount_cents), 0))
        return plain.where(record.target == target, record.batch_id == batch_id).group_by(record.state)
    first = (
        select(former.state)
        .where(
            *(former[name] == record[name] for name in "target source resource_type key batch_id line".split()),
            former.state.not_in(UNDECIDED),
        )
        .order_by(former.version)
        .limit(1)
        .scalar_subquery()
    )
    state = func.coalesce(first, record.state).label("outcome")
    rows = select(state, record.amount_cents).where(record.target == target, record.batch_id == batch_id).subquery()
    return select(rows.c.outcome, func.count(), func.coalesce(func.sum(rows.c.amount_cents), 0)).group_by(
        rows.c.outcome
    )


# -- changing what is known


@verb
def intend_change(
    ledger: LedgerAccess,
    lease: Lease,
    source: str,
    resource_type: str,
    changes: Sequence[tuple[int, Intent]],
    fate: str = "standing",
) -> None:
    """Commit that known records are being changed, as `(known generation, intent)`, and keep what they were.

    An intent of the same generation keeps the resource (a PUT); one of the next gets another (the old one stands until
    the new one is there). The records move to the batch and line of the intents. Raises `LeaseLost`.
    fate: of the old resource; `withdrawn` where it was taken back before.
    """
    now, of = ledger.now(), (lease.target, source, resource_type)
    ledger.terms({text for _, i in changes for text in (i.batch_id, i.feed_hash)})
    with ledger.writing(lease) as write:
        for known, i in changes:
            kept_as = "kept" if known == i.generation else fate
            write(KEEP, [(*of, i.key, kept_as, now, *of, i.key, known)])
            write(KEEP_APPEARANCE, [(*of, i.key, known, i.batch_id, i.line)])
            values = (i.generation, *i[2:-1], i.first_attempt_at or now)
            write(CHANGE, [(*values, i.generation, *of, i.key, known)])


@verb
def raise_generation(
    ledger: LedgerAccess, lease: Lease, rows: Collection[tuple[str, str, str, int]], fate: str | None
) -> int:
    """Make records `(source, resource type, key, generation)` planned anew, under the next generation; how many.

    fate: of the resource that each had, which the ledger keeps knowing; None where there is none to keep.
    """
    now, number = ledger.now(), 0
    with ledger.writing(lease) as write:
        for source, resource_type, key, generation in rows:
            of = (lease.target, source, resource_type, key)
            if fate is not None:
                write(KEEP, [(*of, fate, now, *of, generation)])
            number += write(RAISE, [(*of, generation)])
    return number


@verb
def restore(ledger: LedgerAccess, target: str, source: str, resource_type: str, keys: Collection[str]) -> None:
    """Make records what they were before a change that the target refused."""
    former, repeat = t.former.c, t.appearance.c
    with ledger.transaction() as connection:
        for key in keys:
            this = (former.target == target, former.source == source, former.resource_type == resource_type)
            query = select(t.former).where(*this, former.key == key).order_by(former.version.desc()).limit(1)
            before = connection.execute(query).one_or_none()
            if before is None:
                raise LedgerError("the ledger has nothing that the record was before")
            values = {name: t.term_of(was) if name in t.TERMS else was for name, was in _columns(before)}
            connection.execute(update(t.entry).where(*_entry_of(target, source, resource_type, key)).values(values))
            at = (repeat.target == t.term_of(target), repeat.batch_id == t.term_of(before.batch_id))
            connection.execute(delete(t.appearance).where(*at, repeat.line == before.line))
            connection.execute(delete(t.former).where(*this, former.key == key, former.version == before.version))


# -- taking resources back


@verb
def intend_withdrawal(ledger: LedgerAccess, lease: Lease, rows: Collection[tuple[str, str, str, int]]) -> None:
    """Commit that the resources of these records are being taken back."""
    now = ledger.now()
    with ledger.writing(lease) as write:
        for source, resource_type, key, generation in rows:
            of = (lease.target, source, resource_type, key)
            write(KEEP, [(*of, "standing", now, *of, generation)])


def standing(
    ledger: LedgerAccess,
    target: str,
    source: str,
    resource_type: str,
    keys: Iterable[str] | None = None,
    fate: str = "standing",
) -> list[Former]:
    """Earlier versions whose resource is still to be taken back (or has another fate), of these keys or of all."""
    former = t.former.c
    query = select(*(former[name] for name in Former._fields)).where(
        former.target == target,
        former.source == source,
        former.resource_type == resource_type,
        former.fate == fate,
    )
    with ledger.engine.connect() as connection:
        if keys is None:
            return [Former._make(row) for row in connection.execute(query.order_by(former.key, former.version))]
        names, found = sorted(keys), []
        for start in range(0, len(names), KEYS_A_QUERY):
            some = query.where(former.key.in_(names[start : start + KEYS_A_QUERY]))
            found += [Former._make(row) for row in connection.execute(some)]
        return found


@verb
def withdrawn(ledger: LedgerAccess, target: str, versions: Collection[Former], fate: str = "withdrawn") -> None:
    """Note that the resources of these versions have been taken back."""
    with ledger.transaction() as connection:
        ledger.execute_many(connection, FATE, [_fate(target, each, fate) for each in versions])


@verb
def undone(ledger: LedgerAccess, target: str, versions: Collection[Former]) -> None:
    """The same, and the records themselves are undone."""
    some, now = list(versions), ledger.now()
    of_records = [(now, target, v.source, v.resource_type, v.key, v.generation) for v in some]
    with ledger.transaction() as connection:
        withdrawn(ledger, target, some)
        ledger.execute_many(connection, UNDO, of_records)


def standing_again(ledger: LedgerAccess, target: str, versions: Collection[Former]) -> None:
    """The resources of these versions had been taken back, and are to be once more."""
    withdrawn(ledger, target, versions, "standing")


@verb
def withdrawal_given_up(ledger: LedgerAccess, target: str, versions: Collection[Former]) -> None:
    """The resources of these versions stay what the records have: they are no more to be taken back."""
    withdrawn(ledger, target, versions, "kept")


def _columns(before: Row[Any]) -> Iterator[tuple[str, Any]]:
    return ((name, before._mapping[name]) for name in COLUMNS)


def _entry_of(target: str, source: str, resource_type: str, key: str) -> tuple[ColumnElement[bool], ...]:
    entry, terms = t.entry.c, map(t.term_of, (target, source, resource_type))
    named = zip((entry.target, entry.source, entry.resource_type), terms, strict=True)
    return (*(column == term for column, term in named), entry.key == key)


def _fate(target: str, version: Former, fate: str) -> tuple[object, ...]:
    return fate, target, version.source, version.resource_type, version.key, version.version
