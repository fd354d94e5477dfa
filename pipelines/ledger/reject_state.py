"""Decide if a reject is open or closed, from what the ledger has now. No other module decides it.

A reject is answered once one of these has come to the target:
* the record of its own line, since that line was tried again, or else since the reject was last set aside;
* the rows that were put in for it, as many as were wrong before;
* a record with its key from a later file, since the reject was first set aside;
* its own content under its key, from any file.

A reject is resubmitted while the outcome of a row that is tried for it is open. Such a row was put in, or tried again,
after the reject was set aside. Earlier outcomes of the reject's line do not count, unless a load finds the record
unchanged at the target. A record that is being changed, superseded or made anew still counts as it was before.
A discarded reject stays discarded. Only the tables decide this, never the reject's former state.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, Select, and_, delete, exists, func, or_, select, true, update

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.inserting import keep_others_out
from pipelines.ledger.resubmitted_rows import PutIn, has_landed, is_to_come, lines_at, put_in_for
from pipelines.ledger.row_fates import OPEN, came_at
from pipelines.ledger.states import LANDED, MADE, NOT_MADE
from pipelines.ledger.verbs import verb

_reject, _again, _record = t.reject.c, t.resubmission.c, t.record.c
ABOUT = (
    "reject_id batch_id line source resource_type source_key state content_hash first_seen_at last_seen_at tried_since"
)
CHANGING = ("open", "resubmitted", "closed")
RESTATE = "UPDATE reject SET state = ?, closed_by_batch = ? WHERE target = ? AND reject_id = ?"


def _with_outcomes(row: Any) -> Select[Any]:
    """Select the rejects of rows whose record was at the target already, or has moved to another line. row: columns.

    Outcomes of lines have no index by key. So the query starts from the few batches that have some, and from their
    rows.
    """
    has_outcomes = exists().where(t.versions.c.batch_no == t.batch.c.batch_no, t.IS_OUTCOME)
    some = select(t.batch.c.batch_id).where(has_outcomes).correlate(None)
    batch = and_(t.batch.c.target == row.target, t.batch.c.batch_id == row.batch_id)
    outcome = and_(t.versions.c.batch_no == t.batch.c.batch_no, t.versions.c.line == row.line, t.IS_OUTCOME)
    return select(row.reject_id).join(t.batch, batch).join(t.versions, outcome).where(row.batch_id.in_(some))


REPEATED = _with_outcomes(_again)
"""Rejects with such a row put in for them."""
UNREAD = _with_outcomes(_reject).where(_reject.source_key.is_(None), _reject.state == "closed")
"""Closed rejects whose own row is such, and could not be read at first."""
ByKey = Mapping[tuple[str, str, str], Row[Any]]
"""Records by source, resource type and key."""


def close_answered(ledger: LedgerAccess, of: t.Of, batch_id: str) -> None:
    """Close the rejects that a batch has answered. Called at the end of each load of the batch."""
    with ledger.transaction():
        touched = [name for (name,) in ledger.read(_touched_by(of, batch_id))]
        if touched:
            keep_others_out(ledger)
            restate(ledger, of[0], touched)


@verb
def close_rejects(
    ledger: LedgerAccess,
    target: str,
    source: str,
    resource_type: str,
    keys: Collection[str],
    batch_id: str,
    ids: Collection[str] = (),
    there: Mapping[str, str] = MappingProxyType({}),
    but: Collection[str] = (),
) -> None:
    """Close the rejects that a batch has answered. Earlier versions' facts have further arguments, which are
    ignored.
    """
    del keys, ids, there, but
    close_answered(ledger, (target, source, resource_type), batch_id)


@verb
def date_tries(ledger: LedgerAccess) -> None:
    """Set the moment since when rejects are tried: versions before schema 15 did not note it."""
    undated = (_reject.state == "resubmitted", _reject.tried_since.is_(None))
    ledger.execute(update(t.reject).where(*undated).values(tried_since=_reject.last_seen_at))


@verb
def open_all_unanswered(ledger: LedgerAccess) -> None:
    """Open the closed rejects whose answers were taken back: versions before schema 13 left them closed."""
    keys = defaultdict[t.Of, list[str]](list)
    gone = select(_record.target, _record.source, _record.resource_type, _record.key).where(_record.state == "undone")
    for *of, key in ledger.read(gone):
        target, source, resource_type = of
        keys[target, source, resource_type].append(key)
    for each, of_stream in keys.items():
        open_unanswered(ledger, each, of_stream)
    ledger.execute(delete(t.schema_version).where(t.IS_EARLIER))


def open_unanswered(ledger: LedgerAccess, of: t.Of, keys: Collection[str]) -> None:
    """Open closed rejects that records of these keys had answered, if nothing at the target answers them now."""
    keep_others_out(ledger)
    target, former, lines = of[0], t.former.c, defaultdict[str, set[int]](set)
    stood = select(former.batch_id, former.line).where(t.of_stream(former, of))
    for batch_id, line in ledger.read_of(stood, former.key, keys):
        lines[batch_id].add(line)
    stream = t.number_of(of)
    names = set[str]()
    for repeated, column in ((REPEATED, _again), (UNREAD, _reject)):
        of_keys = repeated.where(column.target == target, t.versions.c.stream_id == stream)
        names.update(name for (name,) in ledger.read_of(of_keys, t.versions.c.key, keys))
    for batch_id, some in lines.items():
        for column, which in ((_again, true()), (_reject, _reject.state == "closed")):
            here = select(column.reject_id).where(column.target == target, column.batch_id == batch_id, which)
            names.update(name for (name,) in ledger.read_of(here, column.line, sorted(some)))
    wrong = select(_again.reject_id).where(_again.target == target)
    names.update(name for (name,) in ledger.read_of(wrong, _again.key, keys))
    closed = select(_reject.reject_id).where(_reject.target == target, _reject.state == "closed")
    closed_now = {name for (name,) in ledger.read_of(closed, _reject.reject_id, sorted(names))}
    by_key = ledger.read_of(closed.where(t.of_stream(_reject, of)), _reject.source_key, keys)
    restate(ledger, target, closed_now | {name for (name,) in by_key})


def restate(ledger: LedgerAccess, target: str, ids: Collection[str], states: Sequence[str] = CHANGING) -> None:
    """Write the present state of those of these rejects that are recorded in one of `states`. Call in a transaction."""
    if changed := changes(ledger, target, ids, states):
        write_states(ledger, changed)


def changes(
    ledger: LedgerAccess, target: str, ids: Collection[str], states: Sequence[str] = CHANGING
) -> list[tuple[str, str | None, str, str]]:
    """Return rejects whose state has changed, as arguments of `write_states`. states: look only at rejects in these."""
    columns = [_reject[name] for name in ABOUT.split()]
    wanted = select(*columns).where(_reject.target == target, _reject.state.in_(states))
    rejects = ledger.read_of(wanted, _reject.reject_id, sorted(ids))
    if not rejects:
        return []
    put_in = put_in_for(ledger, target, [each.reject_id for each in rejects])
    own = lines_at(ledger, target, _read_since(ledger, target, rejects))
    keys = {each.reject_id: _keys(each, put_in.get(each.reject_id)) for each in rejects}
    records = _records_of(ledger, target, rejects, keys)
    came = came_at(ledger, target, {each.batch_id for each in chain(rejects, records.values())})
    changed = list[tuple[str, str | None, str, str]]()
    for each in rejects:
        rows, here = put_in.get(each.reject_id), own.get((each.batch_id, each.line), ())
        closed_by: str | None = None
        is_tried = each.tried_since is not None
        if rows.are_to_come() if rows else is_tried and is_to_come(here, each.tried_since):
            state = "resubmitted"
        elif has_landed(here, each.tried_since if is_tried else each.last_seen_at):
            state, closed_by = "closed", each.batch_id
        else:
            closed_by = (rows and rows.closed_by()) or _closed_by_key(each, [*_of(each, keys, records)], came)
            state = "closed" if closed_by else "open"
        if each.state != state:
            changed.append((state, closed_by, target, each.reject_id))
    return changed


@verb
def write_states(ledger: LedgerAccess, states: Sequence[tuple[str, str | None, str, str]]) -> None:
    """Write states of rejects. Each row has state, closing batch, target and the reject's id."""
    ledger.write(RESTATE, states)


def _closed_by_key(reject: Row[Any], records: Sequence[Row[Any] | None], came: Mapping[str, str]) -> str | None:
    """Return the batch that answers a reject by the records of its keys; None if no batch does."""
    there = [each for each in records if each]
    if len(there) == len(records) and all(_is_by_key(reject, each, came) for each in there):
        return max((str(each.batch_id) for each in there), key=lambda name: came[name])
    return next((str(each.batch_id) for each in there if _is_same(reject, each)), None)


def _is_same(reject: Row[Any], record: Row[Any]) -> bool:
    """True if a record has the reject's key and content, and came to the target after the reject was set aside."""
    same = (record.key, record.content_hash) == (reject.source_key, reject.content_hash)
    return same and record.state in LANDED and (record.finished_at or "") > reject.first_seen_at


def _is_by_key(reject: Row[Any], record: Row[Any], came: Mapping[str, str]) -> bool:
    """True if a record was made after the reject was set aside, by the reject's own file or a later one."""
    is_own = record.batch_id == reject.batch_id
    since = reject.last_seen_at if is_own or record.key != reject.source_key else reject.first_seen_at
    at = record.finished_at if record.key == reject.source_key else record.first_sent_at
    return record.state in MADE and came[record.batch_id] >= came[reject.batch_id] and (at or "") > since


def _keys(reject: Row[Any], rows: PutIn | None) -> list[str]:
    """Return the keys that may answer a reject now: those of its rows that are not done, else the reject's own."""
    keys = rows.keys_left() if rows else set[str]()
    return sorted(keys or {reject.source_key or ""})


def _of(reject: Row[Any], keys: Mapping[str, list[str]], records: ByKey) -> Iterator[Row[Any] | None]:
    for key in keys[reject.reject_id]:
        yield records.get((reject.source, reject.resource_type, key))


def _read_since(ledger: LedgerAccess, target: str, rejects: Iterable[Row[Any]]) -> Iterator[Row[Any]]:
    """Yield the rejects whose batch had a run since they were set aside, to avoid a slow look-up of lines."""
    run = t.run.c
    query = select(run.batch_id, func.max(run.started_at)).where(run.target == target).group_by(run.batch_id)
    begun = dict(map(tuple, ledger.read_of(query, run.batch_id, {each.batch_id for each in rejects})))
    return (each for each in rejects if begun.get(each.batch_id, "") > each.last_seen_at)


def _records_of(ledger: LedgerAccess, target: str, rejects: Iterable[Row[Any]], keys: Mapping[str, list[str]]) -> ByKey:
    """Return the records of these keys. For one that is not made, its last earlier version counts, if any."""
    wanted = dict[tuple[str, str], set[str]]()
    for each in rejects:
        wanted.setdefault((each.source, each.resource_type), set()).update(keys[each.reject_id])
    names = ("key", "batch_id", "state", "content_hash", "finished_at", "first_sent_at")
    found = dict[tuple[str, str, str], Row[Any]]()
    for of, some in wanted.items():
        query = select(*(_record[name] for name in names)).where(t.of_stream(_record, (target, *of)))
        now = {each.key: each for each in ledger.read_of(query, _record.key, sorted(some))}
        waiting = sorted(key for key, each in now.items() if each.state in NOT_MADE)
        former = select(*(t.former.c[name] for name in (*names, "fate"))).order_by(t.former.c.version)
        before = ledger.read_of(former.where(t.of_stream(t.former.c, (target, *of))), t.former.c.key, waiting)
        newest = {each.key: each for each in before}
        now |= {key: each for key, each in newest.items() if each.fate != "withdrawn"}
        found |= {(*of, key): each for key, each in now.items()}
    return found


def _touched_by(of: t.Of, batch_id: str) -> Any:
    """Return the query for open rejects that the batch's records, or records with the reject's content, may answer."""
    record, target = t.records.c, of[0]
    stream = t.number_of(of)
    again = exists().where(_again.target == target, _again.reject_id == _reject.reject_id)
    made = and_(
        record.stream_id == stream,
        or_(t.of_batch(t.records, target, batch_id), record.content_hash == _reject.content_hash),
    )
    by_key = exists().where(record.key == _reject.source_key, made)
    by_row = again.where(_again.key == record.key, made)
    of_stream = and_(t.of_stream(_reject, of), or_(by_key, by_row))
    begun = select(func.max(t.run.c.started_at)).where(t.run.c.target == target, t.run.c.batch_id == batch_id)
    was_before = _reject.last_seen_at < begun.scalar_subquery()
    return select(_reject.reject_id).where(
        _reject.target == target,
        _reject.state.in_(OPEN),
        or_(and_(_reject.batch_id == batch_id, was_before), again.where(_again.batch_id == batch_id), of_stream),
    )
