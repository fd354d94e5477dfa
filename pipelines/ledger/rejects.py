"""Rejects in the ledger: note the rows put in for them, list the open ones, discard them.

A reject keeps its id in whatever file its record comes again; the table `resubmission` has these appearances.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, and_, exists, func, select, union_all

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.batches import BatchLedger
from pipelines.ledger.inserting import insert_new, keep_others_out
from pipelines.ledger.known_rejects import marked_id
from pipelines.ledger.reject_state import RESTATE, restate
from pipelines.ledger.resubmitted_rows import PUT_IN, put_in
from pipelines.ledger.row_fates import DISCARD, OPEN, states_of
from pipelines.ledger.rows import Reason, Reject, reject_id
from pipelines.ledger.verbs import verb

_reject, _again = t.reject.c, t.resubmission.c
FIRST = select(
    *(_reject.reject_id, _reject.batch_id, _reject.line, _reject.source, _reject.resource_type),
    *(_reject.source_key, _reject.state),
)
SET_ASIDE = """
UPDATE resubmission SET key = ?, seen_at = ?, tried_since = NULL
WHERE target = ? AND batch_id = ? AND line = ? AND reject_id = ?"""
TRY = """
UPDATE {0} SET tried_since = ?
WHERE target = ? AND batch_id = ? AND line = ? AND reject_id = ? AND EXISTS (
  SELECT 1 FROM reject AS tried
  WHERE tried.target = {0}.target AND tried.reject_id = {0}.reject_id AND tried.state <> 'closed')"""
FOUND = """
UPDATE {0} SET tried_since = ''
WHERE target = ? AND batch_id = ? AND line = ? AND reject_id = ? AND tried_since IS NOT NULL"""
ROWS = ("reject", "resubmission")
"""Tables of rows that may be tried: the rejects' own rows, and rows of later files."""


class RejectPlace(NamedTuple):
    """The place of an open reject's record: the batch and the first line of its newest appearance.

    key: of a row that was set aside there; None if the row could not be read.
    """

    reject_id: str
    batch_id: str
    line: int
    first_batch_id: str
    source: str
    resource_type: str
    key: str | None = None


# -- answers to rejects


def named_rejects(
    ledger: LedgerAccess, target: str, source: str, resource_type: str, batch_id: str, rejects: Sequence[Reject]
) -> dict[str, Reject]:
    """Return the rejects by id: ids of open rejects that they answer, else their own. Reasons under one id add up."""
    answers = {reject.line: reject.answers for reject in rejects if reject.answers}
    of = (target, source, resource_type)
    valid = _noted(ledger, of, batch_id, answers)
    keys = {reject.line: reject.source_key or "" for reject in rejects}
    now = ledger.now()
    ledger.write(SET_ASIDE, [(keys[row[2]], now, *row) for row in _each(target, batch_id, valid)])
    named: dict[str, Reject] = {}
    for reject in rejects:
        own = (reject_id(target, batch_id, reject.line, reject.source_key),)
        for name in valid.get(reject.line) or own:
            other = named.get(name)
            both = [*_of_its_row(other), *_of_its_row(reject)] if other else reject.reasons
            named[name] = (other or reject)._replace(reasons=both)
    return named


def _of_its_row(reject: Reject) -> Iterator[Reason]:
    """Yield the reasons of one of several rows for a reject, each with its line, since it concerns this row alone."""
    for reason in reject.reasons:
        yield reason if reason.line else reason._replace(line=reject.line)


@verb
def resubmit(
    ledger: LedgerAccess,
    target: str,
    source: str,
    resource_type: str,
    batch_id: str,
    answers: Mapping[int, Sequence[str]],
) -> None:
    """Note that these records, by line, are to be sent to answer these rejects."""
    keep_others_out(ledger)
    of = (target, source, resource_type)
    valid = _noted(ledger, of, batch_id, answers)
    tried = list(_each(target, batch_id, valid))
    for table in ROWS:
        ledger.write(TRY.format(table), [(ledger.now(), *row) for row in tried])
    restate(ledger, target, {name for *_, name in tried})


@verb
def note_answers(
    ledger: LedgerAccess,
    target: str,
    source: str,
    resource_type: str,
    batch_id: str,
    answers: Mapping[int, Sequence[str]],
) -> None:
    """Call `resubmit`: a fact of earlier versions, for records beside wrong ones of the batch."""
    resubmit(ledger, target, source, resource_type, batch_id, answers)


@verb
def found_there(ledger: LedgerAccess, target: str, batch_id: str, answers: Mapping[int, Sequence[str]]) -> None:
    """Note that these records, by line, are at the target unchanged, which answers these rejects."""
    for table in ROWS:
        ledger.write(FOUND.format(table), list(_each(target, batch_id, answers)))


def _each(target: str, batch_id: str, answers: Mapping[int, Sequence[str]]) -> Iterator[tuple[str, str, int, str]]:
    for line, names in answers.items():
        yield from ((target, batch_id, line, name) for name in names)


def _noted(ledger: LedgerAccess, of: t.Of, batch_id: str, answers: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    """Return the answers that count: to open rejects of this source, and to rejects that the same line answered
    before. Note those to rejects of other batches.

    An answer does not count if another batch's record for the reject is under way: that record decides the reject's
    fate.
    """
    if not answers:
        return {}
    target, wanted = of[0], sorted({name for names in answers.values() for name in names})
    states = states_of(ledger, of, batch_id, wanted)
    resubmitted = select(_again.line, _again.reject_id).where(_again.target == target, _again.batch_id == batch_id)
    made = select(_reject.line, _reject.reject_id).where(_reject.target == target, _reject.batch_id == batch_id)
    own = {name: line for line, name in ledger.read_of(made, _reject.reject_id, wanted)}
    before = {(line, name) for line, name in ledger.read_of(resubmitted, _again.reject_id, wanted)}
    before |= {(line, name) for name, line in own.items()}
    valid = {
        line: [
            name
            for name in names
            if states.get(name) == "open" or ((line, name) in before and states.get(name) != "resubmitted")
        ]
        for line, names in answers.items()
    }
    rows = [
        {"target": target, "batch_id": batch_id, "line": line, "reject_id": name, "seen_at": ledger.now()}
        for *_, line, name in _each(target, batch_id, valid)
        if name not in own
    ]
    insert_new(ledger, t.resubmission, rows)
    return valid


@verb
def settle_resubmitted(ledger: LedgerAccess, target: str) -> None:
    """Write the present state of the resubmitted rejects, whose records may have an outcome now."""
    keep_others_out(ledger)
    waiting = select(_reject.reject_id).where(_reject.target == target, _reject.state == "resubmitted")
    restate(ledger, target, [name for (name,) in ledger.read(waiting)])


# -- open rejects


def reject_places(
    ledger: LedgerAccess,
    target: str,
    batch_id: str | None = None,
    states: Sequence[str] = ("open",),
    rule_id: str | None = None,
) -> list[RejectPlace]:
    """Return the places of a target's open rejects, or of those that are or first were in one batch, by batch and
    line.

    A reject has several places if a later file answers it with several records. rule_id: a rule that rejected them.
    """
    which = [_reject.target == target, _reject.state.in_(states)]
    if batch_id is not None:
        of_batch = (
            select(each.reject_id).where(each.target == target, each.batch_id == batch_id)
            for each in (t.reject.alias().c, t.resubmission.alias().c)
        )
        which.append(_reject.reject_id.in_(union_all(*of_batch)))
    if rule_id is not None:
        reason = t.reject_reason.c
        which.append(exists().where(reason.reject_id == _reject.reject_id, reason.rule_id == rule_id))
    with ledger.reading():
        every = list(_places(ledger, target, which))
    found = (each for each in every if batch_id in (None, each.batch_id, each.first_batch_id))
    return sorted(found, key=lambda each: (each.batch_id, each.line, each.reject_id))


def _places(ledger: LedgerAccess, target: str, which: Sequence[ColumnElement[bool]]) -> Iterator[RejectPlace]:
    later = put_in(ledger, ledger.read(PUT_IN.where(*which)), target)
    for name, batch, line, source, kind, key, state in ledger.read(FIRST.where(*which)):
        files = later[name].files if name in later else [[]]
        rows = later[name].standing() if name in later and state == "open" else files[-1]
        again = [(each.batch_id, each.line, each.key) for each in rows]
        for at, on, now in again or [(batch, line, key)]:
            yield RejectPlace(name, at, on, batch, source, kind, now or None)


def unmet_since(ledger: LedgerAccess, target: str, moment: str, ids: Iterable[str]) -> set[str]:
    """Return the rejects that are open and were not set aside again after a moment."""
    query = select(_reject.reject_id).where(_reject.target == target, _reject.state.in_(OPEN))
    found = ledger.read_of(query.where(_reject.last_seen_at < moment), _reject.reject_id, sorted(ids))
    return {name for (name,) in found}


def reasons_of(ledger: LedgerAccess, ids: Iterable[str]) -> dict[str, list[Reason]]:
    """Return the reasons of rejects, in order, by reject id."""
    reason = t.reject_reason.c
    found: dict[str, list[Reason]] = {}
    columns = (reason.rule_id, reason.expression, reason.column_name, reason.message, reason.retryable, reason.line)
    query = select(reason.reject_id, *columns).order_by(reason.reject_id, reason.position)
    for name, rule, expression, column, message, retryable, line in ledger.read_of(
        query, reason.reject_id, sorted(ids)
    ):
        found.setdefault(name, []).append(Reason(rule, expression, column, message, bool(retryable), line))
    return found


def exported_ids(ledger: LedgerAccess, target: str, reasons: Mapping[str, Sequence[Reason]]) -> dict[str, str]:
    """Return the ids of rejects for export, by id. They contain the moment up to which a reader knows the record."""
    query = select(_reject.reject_id, _reject.last_seen_at).where(_reject.target == target)
    seen = ledger.read_of(query, _reject.reject_id, sorted(reasons))
    return {name: marked_id(name, [reason.rule_id for reason in reasons[name]], at) for name, at in seen}


def feeds_answered(ledger: LedgerAccess, ids: Iterable[str]) -> set[tuple[str, str, str]]:
    """Return the feeds, with source and type, whose rejects have these ids. Unknown ids are ignored."""
    batch = t.batch.c
    same = and_(batch.target == _reject.target, batch.batch_id == _reject.batch_id)
    query = select(batch.feed, _reject.source, _reject.resource_type).join(t.reject, same).distinct()
    return {(name, source, kind) for name, source, kind in ledger.read_of(query, _reject.reject_id, ids)}


def open_by_batch(ledger: LedgerAccess) -> dict[tuple[str, str], int]:
    """Count the open rejects by target and by the batch that they came with."""
    query = select(_reject.target, _reject.batch_id, func.count()).where(_reject.state.in_(OPEN))
    rows = ledger.read(query.group_by(_reject.target, _reject.batch_id))
    return {(target, batch): int(number) for target, batch, number in rows}


def closed_of(ledger: LedgerAccess, target: str) -> set[str]:
    """Return the batches with a reject that a later try or a correction has closed."""
    query = select(_reject.batch_id).distinct().where(_reject.target == target, _reject.state == "closed")
    return {str(batch) for (batch,) in ledger.read(query)}


def open_in_batch(ledger: LedgerAccess, target: str, batch_id: str) -> list[Row[Any]]:
    """Return the open rejects that came with a batch, by line: id, line, key, stage, state and attempts."""
    query = select(_reject.reject_id, _reject.line, _reject.source_key, _reject.stage, _reject.state, _reject.attempts)
    query = query.where(_reject.target == target, _reject.batch_id == batch_id, _reject.state.in_(OPEN))
    return ledger.read(query.order_by(_reject.line, _reject.reject_id))


def open_here(ledger: LedgerAccess, target: str, batch_id: str) -> int:
    """Count the open rejects whose record is in this batch, whichever file it came in first. They keep its rows."""
    found = reject_places(ledger, target, batch_id, OPEN)
    return len({each.reject_id for each in found if each.batch_id == batch_id})


def targets_with_rejects(ledger: LedgerAccess) -> list[str]:
    return [target for (target,) in ledger.read(select(t.reject.c.target).distinct().order_by(t.reject.c.target))]


# -- discards


@verb
def discard(ledger: BatchLedger, ids: Sequence[str], user: str, why: str) -> dict[str, str]:
    """Discard open rejects for good, each with a decision: either all of them or, if one cannot be discarded, none.

    Return the states, by id, of those that cannot be discarded; `unknown` if there is no such reject.
    """
    keep_others_out(ledger)
    query = select(_reject.reject_id, _reject.target, _reject.state)
    rows = ledger.read_of(query, _reject.reject_id, sorted(ids))
    found = {name: (target, state) for name, target, state in rows}
    wrong = {
        name: found[name][1] if name in found else "unknown"
        for name in ids
        if name not in found or found[name][1] not in ("open", "discarded")
    }
    if wrong:
        return wrong
    going = [(target, name) for name, (target, state) in found.items() if state == "open"]
    ledger.write(RESTATE, [("discarded", None, *each) for each in going])
    for target in dict.fromkeys(target for target, _ in going):
        ledger.note_decisions(target, user, DISCARD, [name for at, name in going if at == target], why)
    return {}
