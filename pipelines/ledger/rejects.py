"""Rejects in the ledger, beside `Ledger.reject` and `close_rejects`: what answers them, which are open, discards.

A reject stays itself in whatever file its record comes again: `resubmission` says where.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, and_, func, select, update

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.batches import BatchLedger
from pipelines.ledger.inserting import insert_new
from pipelines.ledger.rows import Reason, Reject, reject_id
from pipelines.ledger.states import LANDED
from pipelines.ledger.verbs import verb

OPEN = ("open", "resubmitted")
IDS_A_QUERY = 400
LINES_A_QUERY = 10_000
Name = TypeVar("Name", str, int)


class RejectPlace(NamedTuple):
    """The place of an open reject's record: the batch and the first line of its newest appearance."""

    reject_id: str
    batch_id: str
    line: int
    first_batch_id: str
    source: str
    resource_type: str


# -- what answers a reject


def named_rejects(
    connection: Connection,
    target: str,
    source: str,
    resource_type: str,
    batch_id: str,
    rejects: Sequence[Reject],
    now: str,
) -> dict[str, Reject]:
    """The rejects by id: the ids they answer where these are open, else their own. Reasons under one id add up."""
    answers = {reject.line: reject.answers for reject in rejects if reject.answers}
    valid = _answerable(connection, target, source, resource_type, batch_id, answers)
    _note(connection, target, batch_id, valid, now)
    named: dict[str, Reject] = {}
    for reject in rejects:
        own = (reject_id(target, batch_id, reject.line, reject.source_key),)
        for name in valid.get(reject.line) or own:
            other = named.get(name)
            named[name] = other._replace(reasons=[*other.reasons, *reject.reasons]) if other else reject
    return named


@verb
def resubmit(
    ledger: LedgerAccess,
    target: str,
    source: str,
    resource_type: str,
    batch_id: str,
    answers: Mapping[int, Sequence[str]],
) -> None:
    """Note that these records, by line, are on their way to answer these rejects."""
    with ledger.transaction() as connection:
        valid = _answerable(connection, target, source, resource_type, batch_id, answers)
        _note(connection, target, batch_id, valid, ledger.now())
        reject = t.reject.c
        for some in _parts({name for names in valid.values() for name in names}):
            where = (reject.target == target, reject.reject_id.in_(some), reject.state == "open")
            connection.execute(update(t.reject).where(*where).values(state="resubmitted"))


def _answerable(
    connection: Connection,
    target: str,
    source: str,
    resource_type: str,
    batch_id: str,
    answers: Mapping[int, Sequence[str]],
) -> dict[int, list[str]]:
    """The answers that count: to a reject of this source that is open, or that the same line has answered before."""
    if not answers:
        return {}
    reject, again = t.reject.c, t.resubmission.c
    wanted = {name for names in answers.values() for name in names}
    open_ids: set[str] = set()
    before: set[tuple[int, str]] = set()
    for some in _parts(wanted):
        ours = (reject.target == target, reject.source == source, reject.resource_type == resource_type)
        open_query = select(reject.reject_id).where(*ours, reject.reject_id.in_(some), reject.state.in_(OPEN))
        open_ids.update(connection.execute(open_query).scalars())
        again_query = select(again.line, again.reject_id).where(
            again.target == target, again.batch_id == batch_id, again.reject_id.in_(some)
        )
        before.update((line, name) for line, name in connection.execute(again_query))
        own_query = select(reject.line, reject.reject_id).where(
            *ours, reject.reject_id.in_(some), reject.batch_id == batch_id
        )
        before.update((line, name) for line, name in connection.execute(own_query))
    valid = {
        line: [name for name in names if name in open_ids or (line, name) in before] for line, names in answers.items()
    }
    return {line: names for line, names in valid.items() if names}


def _note(connection: Connection, target: str, batch_id: str, answers: Mapping[int, Sequence[str]], now: str) -> None:
    """Appearances in files other than the reject's own."""
    names = {name for each in answers.values() for name in each}
    own: set[str] = set()
    for some in _parts(names):
        reject = t.reject.c
        query = select(reject.reject_id).where(
            reject.target == target, reject.batch_id == batch_id, reject.reject_id.in_(some)
        )
        own.update(connection.execute(query).scalars())
    rows = [
        {"target": target, "batch_id": batch_id, "line": line, "reject_id": name, "seen_at": now}
        for line, each in answers.items()
        for name in each
        if name not in own
    ]
    insert_new(connection, t.resubmission, rows)


@verb
def settle_resubmitted(ledger: LedgerAccess, target: str) -> None:
    """Close the resubmitted rejects whose records have landed since, and open those that were refused."""
    with ledger.transaction() as connection:
        waiting = list(_places(connection, target, ("resubmitted",)))
        of_rows = _row_states(connection, target, waiting)
        for each in waiting:
            states = of_rows[each.batch_id, each.line]
            if not states or not states <= {*LANDED, "undone", "refused"}:
                continue
            values = {"state": "open"} if "refused" in states else {"state": "closed", "closed_by_batch": each.batch_id}
            reject = t.reject.c
            where = (reject.target == target, reject.reject_id == each.reject_id, reject.state == "resubmitted")
            connection.execute(update(t.reject).where(*where).values(**values))


def _row_states(connection: Connection, target: str, at: Iterable[RejectPlace]) -> Mapping[tuple[str, int], set[str]]:
    """The states of what stands on these lines, by batch and line: a batch is read through for many lines at once."""
    found: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    lines = defaultdict[str, set[int]](set)
    for each in at:
        lines[each.batch_id].add(each.line)
    for batch_id, wanted in lines.items():
        for some in _parts(wanted, LINES_A_QUERY):
            for c in (t.record.c, t.repeat.c):
                there = select(c.line, c.state).where(c.target == target, c.batch_id == batch_id, c.line.in_(some))
                for line, state in connection.execute(there):
                    found[batch_id, line].add(state)
    return found


# -- which are open


def reject_places(
    ledger: LedgerAccess, target: str, batch_id: str | None = None, states: Sequence[str] = ("open",)
) -> list[RejectPlace]:
    """The open rejects of a target, or those that stand or first stood in one batch, by batch and line.

    A reject stands on several lines where a later file answers it with several records.
    """
    with ledger.engine.connect() as connection:
        found = _places(connection, target, states)
        return sorted(
            (each for each in found if batch_id in (None, each.batch_id, each.first_batch_id)),
            key=lambda each: (each.batch_id, each.line, each.reject_id),
        )


def _places(connection: Connection, target: str, states: Sequence[str]) -> Iterator[RejectPlace]:
    reject, again = t.reject.c, t.resubmission.c
    of_these = and_(reject.target == target, reject.state.in_(states))
    later = (
        select(again.reject_id, again.batch_id, again.line)
        .join(t.reject, and_(reject.target == again.target, reject.reject_id == again.reject_id))
        .where(of_these)
        .order_by(again.seen_at, again.batch_id, again.line)
    )
    newest: dict[str, tuple[str, list[int]]] = {}
    for name, batch, line in connection.execute(later):
        held = newest.get(name)
        if held and held[0] == batch:
            held[1].append(line)
        else:
            newest[name] = (batch, [line])
    query = select(reject.reject_id, reject.batch_id, reject.line, reject.source, reject.resource_type).where(of_these)
    for name, first_batch, first_line, source, resource_type in connection.execute(query):
        batch, lines = newest.get(name, (first_batch, [first_line]))
        yield from (RejectPlace(name, batch, line, first_batch, source, resource_type) for line in lines)


def reasons_of(ledger: LedgerAccess, ids: Iterable[str]) -> dict[str, list[Reason]]:
    """The reasons of rejects, in order, by id."""
    reason = t.reject_reason.c
    found: dict[str, list[Reason]] = {}
    columns = (reason.rule_id, reason.expression, reason.column_name, reason.message, reason.retryable, reason.line)
    with ledger.engine.connect() as connection:
        for some in _parts(ids):
            query = select(reason.reject_id, *columns).where(reason.reject_id.in_(some))
            for row in connection.execute(query.order_by(reason.reject_id, reason.position)):
                found.setdefault(row[0], []).append(Reason(*row[1:5], retryable=bool(row[5]), line=row[6]))
    return found


def feeds_answered(ledger: LedgerAccess, ids: Iterable[str]) -> set[str]:
    """The feeds whose rejects have these ids; what is no reject's id is passed over."""
    reject, batch = t.reject.c, t.batch.c
    same = and_(batch.target == reject.target, batch.batch_id == reject.batch_id)
    query = select(batch.feed).join(t.reject, same).distinct()
    with ledger.engine.connect() as connection:
        parts = (connection.execute(query.where(reject.reject_id.in_(some))).scalars() for some in _parts(ids))
        return {name for names in parts for name in names}


def open_by_batch(ledger: LedgerAccess) -> dict[tuple[str, str], int]:
    """Count the rejects that wait for somebody, by target and the batch that they came with."""
    reject = t.reject.c
    query = select(reject.target, reject.batch_id, func.count()).where(reject.state.in_(OPEN))
    with ledger.engine.connect() as connection:
        rows = connection.execute(query.group_by(reject.target, reject.batch_id))
        return {(target, batch): int(number) for target, batch, number in rows}


def open_in_batch(ledger: LedgerAccess, target: str, batch_id: str) -> list[dict[str, Any]]:
    """The rejects of a batch that are not done with, by line: id, line, stage, state, attempts and rules."""
    reject = t.reject.c
    query = select(reject.reject_id, reject.line, reject.stage, reject.state, reject.attempts)
    query = query.where(reject.target == target, reject.batch_id == batch_id, reject.state.in_(OPEN))
    with ledger.engine.connect() as connection:
        found = [dict(row._mapping) for row in connection.execute(query.order_by(reject.line, reject.reject_id))]
    reasons = reasons_of(ledger, [row["reject_id"] for row in found])
    return [row | {"rules": [reason.rule_id for reason in reasons.get(row["reject_id"], ())]} for row in found]


def open_by_key(ledger: LedgerAccess, target: str, batch_id: str) -> dict[str, list[str]]:
    """The ids of the rejects that came with a batch and are not done with, by source key, where they have one."""
    reject = t.reject.c
    query = select(reject.source_key, reject.reject_id).where(reject.source_key.is_not(None))
    query = query.where(reject.target == target, reject.batch_id == batch_id, reject.state.in_(OPEN))
    found: dict[str, list[str]] = {}
    with ledger.engine.connect() as connection:
        for key, name in connection.execute(query):
            found.setdefault(key, []).append(name)
    return found


def open_by_line(ledger: LedgerAccess, target: str, batch_id: str) -> dict[int, str]:
    """The ids, apart by spaces, of the rejects that came with a batch and are not done with, by line."""
    reject = t.reject.c
    query = select(reject.line, reject.reject_id)
    query = query.where(reject.target == target, reject.batch_id == batch_id, reject.state.in_(OPEN))
    found: dict[int, str] = {}
    with ledger.engine.connect() as connection:
        for line, name in connection.execute(query.order_by(reject.line, reject.reject_id)):
            found[line] = f"{found[line]} {name}" if line in found else name
    return found


def targets_with_rejects(ledger: LedgerAccess) -> list[str]:
    with ledger.engine.connect() as connection:
        return list(connection.execute(select(t.reject.c.target).distinct().order_by(t.reject.c.target)).scalars())


# -- discards


@verb
def discard(ledger: BatchLedger, ids: Sequence[str], user: str, why: str) -> dict[str, str]:
    """Set open rejects aside for good, with a decision each; all of them or, where one cannot be, none.

    Gives what stands in the way: the state by id, `unknown` where there is no such reject.
    """
    reject = t.reject.c
    with ledger.transaction() as connection:
        found: dict[str, tuple[str, str]] = {}
        for some in _parts(ids):
            query = select(reject.reject_id, reject.target, reject.state).where(reject.reject_id.in_(some))
            found.update((name, (target, state)) for name, target, state in connection.execute(query))
        wrong = {
            name: found[name][1] if name in found else "unknown"
            for name in ids
            if name not in found or found[name][1] not in ("open", "discarded")
        }
        if wrong:
            return wrong
        by_target: dict[str, list[str]] = {}
        for name, (target, state) in found.items():
            if state == "open":
                by_target.setdefault(target, []).append(name)
        for target, names in by_target.items():
            for some in _parts(names):
                where = (reject.target == target, reject.reject_id.in_(some))
                connection.execute(update(t.reject).where(*where).values(state="discarded"))
            ledger.add_decisions(connection, target, user, "rejects discard", names, why)
    return {}


def _parts(ids: Iterable[Name], size: int = IDS_A_QUERY) -> Iterator[list[Name]]:
    every = sorted(set(ids))
    return (every[start : start + size] for start in range(0, len(every), size))
