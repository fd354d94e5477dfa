"""Keep a record's earlier versions when it is updated, superseded or taken back; restore them if the target refuses.

`record` has each key once, in its newest generation. `version` has its earlier versions, each with its resource.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, Update, delete, select, update

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.lease import HeldRight
from pipelines.ledger.reject_state import open_unanswered
from pipelines.ledger.rows import Intent
from pipelines.ledger.states import LANDED, NOT_MADE, UNDECIDED, in_sql
from pipelines.ledger.tables import LedgerError
from pipelines.ledger.verbs import verb

KEPT = """stream_id, key, batch_no, line, generation, content_hash, feed_no, state, resource_id, patient_id, source_at,
  amount_cents, attempts, http_status, first_attempt_at, finished_at, first_sent_at"""
COLUMNS = KEPT.replace(",", "").split()
OF_KEY = "stream_id = ? AND key = ?"
KEEP = f"""
INSERT INTO version ({KEPT}, is_outcome, version, fate, kept_at)
SELECT {KEPT}, {{is_outcome}},
  (SELECT COALESCE(MAX(version), 0) + 1 FROM version WHERE {OF_KEY} AND fate IS NOT NULL),
  CAST(? AS TEXT), CAST(? AS TEXT)
FROM record WHERE {OF_KEY} AND generation = ?"""
KEEP_HERE = KEEP.format(is_outcome=0)
KEEP_AND_MOVE = f"""
{KEEP}
ON CONFLICT (batch_no, line) WHERE is_outcome = 1
DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "version", "fate", "kept_at"))}"""
KEEP_AND_MOVE = KEEP_AND_MOVE.format(
    is_outcome=f"""CASE WHEN (batch_no = ? AND line = ?) OR EXISTS (
    SELECT 1 FROM version AS there
    WHERE there.batch_no = record.batch_no AND there.line = record.line AND there.is_outcome = 1
      AND (there.fate IS NOT NULL OR there.key <> record.key OR record.state IN ({in_sql(NOT_MADE)}))
  ) THEN 0 ELSE 1 END"""
)
"""Keeps the version of a record that moves to another line. It becomes the outcome of the line that the record leaves,
unless that line has one of an earlier version or of another record. If the line's row had only been noted, such as
`skipped`, and has made or changed the resource since, that is the outcome in its place.
"""
KEEP_OUTCOME = f"""
INSERT INTO version ({KEPT}, is_outcome)
SELECT {KEPT}, 1 FROM record
WHERE {OF_KEY} AND generation = ? AND state NOT IN ({in_sql(UNDECIDED)})
  AND NOT (batch_no = ? AND line = ?)
ON CONFLICT DO NOTHING"""
CHANGE = f"""
UPDATE record SET generation = ?, batch_no = ?, line = ?, content_hash = ?, feed_no = ?, patient_id = ?,
  source_at = ?, amount_cents = ?, first_attempt_at = ?, state = 'sending', attempts = attempts + 1,
  resource_id = CASE WHEN generation = ? THEN resource_id END, http_status = NULL, finished_at = NULL
WHERE {OF_KEY} AND generation = ?"""
ANEW = f"""
UPDATE record SET generation = generation + ?, state = 'planned', resource_id = NULL, http_status = NULL,
  finished_at = NULL, first_attempt_at = NULL
WHERE {OF_KEY} AND generation = ?"""
FATE = f"UPDATE version SET fate = ? WHERE {OF_KEY} AND version = ? AND fate IS NOT NULL"
"""The last condition is that of the index: without it, each row would look at all versions."""
UNDO = f"UPDATE record SET state = 'undone', finished_at = ? WHERE {OF_KEY} AND generation = ?"


class FormerVersion(NamedTuple):
    """An earlier version of a record, and the fate of its resource."""

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

    @property
    def name(self) -> str:
        """Return the row's name for people: `<batch>:<line>`."""
        return f"{self.batch_id}:{self.line}"

    @property
    def resource(self) -> str:
        return f"{self.resource_type}/{self.resource_id}"


# -- changing known records


@verb
def intend_change(
    ledger: LedgerAccess,
    lease: HeldRight,
    source: str,
    resource_type: str,
    changes: Sequence[tuple[int, Intent]],
    fate: str = "standing",
) -> None:
    """Record the intent to change known records, as `(known generation, intent)`, and keep their earlier versions.

    An intent of the same generation keeps the resource (a PUT). An intent of the next generation makes another
    resource; the old one stays until the new one is there. The records move to the batch and line of the intents.
    Raises `LeaseLost`. fate: of the old resource; `withdrawn` if it was taken back before.
    """
    now, stream = ledger.now(), ledger.stream(lease.target, source, resource_type)
    with ledger.writing(lease):
        for known, i in changes:
            this = (stream, i.key)
            place = (ledger.batch_number(lease.target, i.batch_id), i.line)
            kept_as = "kept" if known == i.generation else fate
            ledger.write(KEEP_AND_MOVE, [(*place, *this, kept_as, now, *this, known)])
            said = (i.content_hash, ledger.feed_version(i.feed_hash), *i[6:-1], i.first_attempt_at or now)
            ledger.write(CHANGE, [(i.generation, *place, *said, i.generation, *this, known)])


@verb
def plan_anew(
    ledger: LedgerAccess, lease: HeldRight, rows: Collection[tuple[str, str, str, int]], fate: str | None
) -> int:
    """Plan records `(source, resource type, key, generation)` anew; return their number.

    They get the next generation, so that a target does not mistake them for the resources under their keys. A record
    whose resource is gone keeps its generation: its name is free, and an importer without this ledger finds the new
    resource by that name. fate: of each record's earlier resource, which the ledger keeps; None if there is none to
    keep.
    """
    now, number, step = ledger.now(), 0, int(fate != "gone")
    with ledger.writing(lease):
        for *stream, key, generation in rows:
            this = (ledger.stream(lease.target, *stream), key)
            if fate is not None:
                ledger.write(KEEP_HERE, [(*this, fate, now, *this, generation)])
            number += ledger.write(ANEW, [(step, *this, generation)])
    return number


@verb
def restore(ledger: LedgerAccess, target: str, source: str, resource_type: str, keys: Collection[str]) -> None:
    """Restore records whose change the target refused, each to its last earlier version."""
    stream = ledger.stream(target, source, resource_type)
    for key in keys:
        before = _last_version(ledger, stream, key)
        if before is None:
            raise LedgerError("the ledger has nothing that the record was before")
        _restore(ledger, before)


@verb
def give_up(ledger: LedgerAccess, lease: HeldRight, rows: Collection[tuple[str, str, str, int]]) -> None:
    """Give up records `(source, resource type, key, generation)` of which nothing is at the target.

    Each becomes what it was before it was to be sent: its last earlier version, or `undone` if that was taken back. A
    record that was never there is removed.
    """
    with ledger.writing(lease):
        for *of, key, generation in rows:
            stream = ledger.stream(lease.target, *of)
            before = _last_version(ledger, stream, key)
            if before is None:
                record = t.records.c
                this = (record.stream_id == stream, record.key == key, record.generation == generation)
                ledger.execute(delete(t.records).where(*this))
            elif before.fate == "withdrawn" and before.state != "undone":
                ledger.execute(_as_before(before, state="undone"))
            else:
                _restore(ledger, before)


def _last_version(ledger: LedgerAccess, stream: int, key: str) -> Row[Any] | None:
    version = t.versions.c
    this = (version.stream_id == stream, version.key == key, version.fate.is_not(None))
    found = ledger.read(select(t.versions).where(*this).order_by(version.version.desc()).limit(1))
    return found[0] if found else None


def _as_before(before: Row[Any], **others: Any) -> Update:
    record, values = t.records.c, {name: before._mapping[name] for name in COLUMNS}
    of_key = (record.stream_id == before.stream_id, record.key == before.key)
    return update(t.records).where(*of_key).values(values | others)


def _restore(ledger: LedgerAccess, before: Row[Any]) -> None:
    ledger.execute(_as_before(before))
    ledger.execute(delete(t.versions).where(t.versions.c.version_no == before.version_no))


# -- taking resources back


@verb
def intend_withdrawal(ledger: LedgerAccess, lease: HeldRight, rows: Collection[tuple[str, str, str, int]]) -> None:
    """Record the intent to take back the resources of these records."""
    now = ledger.now()
    with ledger.writing(lease):
        for *stream, key, generation in rows:
            this = (ledger.stream(lease.target, *stream), key)
            ledger.write(KEEP_HERE, [(*this, "standing", now, *this, generation)])


def earlier_versions(
    ledger: LedgerAccess,
    target: str,
    source: str,
    resource_type: str,
    keys: Iterable[str] | None = None,
    fate: str = "standing",
) -> list[FormerVersion]:
    """Return earlier versions whose resource has a fate, by default those to be taken back; of these keys or of all."""
    former = t.former.c
    of = t.of_stream(former, (target, source, resource_type))
    query = select(*(former[name] for name in FormerVersion._fields)).where(of, former.fate == fate)
    if keys is None:
        return list(map(FormerVersion._make, ledger.read(query.order_by(former.key, former.version))))
    return list(map(FormerVersion._make, ledger.read_of(query, former.key, sorted(keys))))


def superseded_versions(
    ledger: LedgerAccess, target: str, source: str, resource_type: str, batch_id: str | None = None
) -> list[FormerVersion]:
    """Return versions to be taken back because their record is there in a later generation.

    A version of the record's own generation waits for an undo. batch_id: of the present records; None for all.
    """
    of, former, record = (target, source, resource_type), t.former.c, t.records.c
    later = (record.stream_id == t.number_of(of)) & (record.key == former.key)
    query = select(*(former[name] for name in FormerVersion._fields)).select_from(t.former.join(t.records, later))
    query = query.where(t.of_stream(former, of), former.fate == "standing", record.generation > former.generation)
    query = query.where(record.state.in_((*LANDED, "undone"))).order_by(former.key, former.version)
    if batch_id is not None:
        query = query.where(t.of_batch(t.records, target, batch_id))
    return list(map(FormerVersion._make, ledger.read(query)))


@verb
def withdrawn(ledger: LedgerAccess, target: str, versions: Collection[FormerVersion], fate: str = "withdrawn") -> None:
    """Note that the resources of these versions were taken back, or have another fate."""
    ledger.write(FATE, [(fate, ledger.stream(target, v.source, v.resource_type), v.key, v.version) for v in versions])


@verb
def undone(ledger: LedgerAccess, target: str, versions: Collection[FormerVersion]) -> None:
    """Note that the resources of these versions were taken back, and set their records to `undone`. Open the rejects
    that these records had answered.
    """
    some, now = list(versions), ledger.now()
    of_records = [(now, ledger.stream(target, v.source, v.resource_type), v.key, v.generation) for v in some]
    withdrawn(ledger, target, some)
    ledger.write(UNDO, of_records)
    keys: dict[tuple[str, str], list[str]] = {}
    for v in some:
        keys.setdefault((v.source, v.resource_type), []).append(v.key)
    for (source, resource_type), of_stream in keys.items():
        open_unanswered(ledger, (target, source, resource_type), of_stream)


def standing_again(ledger: LedgerAccess, target: str, versions: Collection[FormerVersion]) -> None:
    """Note that the resources of these versions, taken back before, are to be taken back once more."""
    withdrawn(ledger, target, versions, "standing")


@verb
def withdrawal_given_up(ledger: LedgerAccess, target: str, versions: Collection[FormerVersion]) -> None:
    """Note that the resources of these versions remain the records' own, and are not to be taken back."""
    withdrawn(ledger, target, versions, "kept")
