"""Decide if a row may be sent, or if another row was sent for its reject already. No other module decides it.

A reject is answered by the record of its key, and by records that later files put in for it under any key. Rejects of
one key in several files are one record that came again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Row, and_, exists, func, or_, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.known_rejects import TOLD
from pipelines.ledger.lease import LATEST
from pipelines.ledger.resubmitted_rows import lines_at, under_other_keys
from pipelines.ledger.states import LANDED, UNDECIDED

OPEN = ("open", "resubmitted")
DONE_WITH = ("closed", "resubmitted", "discarded")
"""The fates of a reject that is not open, in the order in which they are reported: its record is at the target, its
record is on its way, a person discarded it.
"""
DISCARD, AGAIN = "rejects discard", "import --again"


class AnsweringRow(NamedTuple):
    """A row that is to be sent, with its key and the rejects that it names.

    names: by reject, the moment up to which a person knew of the reject's record; see `known_rejects.py`.
    """

    key: str | None
    names: Mapping[str, str] = MappingProxyType({})


class RejectFate(NamedTuple):
    """The fate of the reject that a row answers: `open` or one of `DONE_WITH`. is_named: the row names the reject."""

    state: str
    is_named: bool


class AnsweringRecord(NamedTuple):
    """A record that may answer a reject, with its present state: it has the reject's key, or a file put it in for the
    reject.

    sent_at: the moment of the record's first attempt.
    """

    key: str
    batch_id: str
    state: str
    sent_at: str
    is_put_in: bool


def fates(
    ledger: LedgerAccess, of: t.Of, batch_id: str, claims: Sequence[AnsweringRow], here: Collection[str] = ()
) -> list[RejectFate]:
    """Return, for each row of a batch, the fate of the rejects that it names, else of the rejects of its key.

    here: the rejects that rows of this batch are to answer. A row that is tried again names its own reject, which is
    ignored.
    """
    query = _rejects(of).where(t.reject.c.batch_id != batch_id)
    names = sorted({name for claim in claims for name in claim.names})
    named = AnsweredRejects(ledger, of, ledger.read_of(query, t.reject.c.reject_id, names))
    keys = {claim.key for claim in claims if not any(name in named.by_id for name in claim.names)}
    keys |= {reject.source_key for reject in named.by_id.values()}
    of_keys = AnsweredRejects.ended(ledger, of, batch_id, keys - {None}, here)
    return [_fate(claim, batch_id, named, of_keys, here) for claim in claims]


def _fate(
    claim: AnsweringRow, batch_id: str, named: "AnsweredRejects", of_keys: "AnsweredRejects", here: Collection[str]
) -> RejectFate:
    mine = [named.by_id[name] for name in claim.names if name in named.by_id]
    if not mine:
        return RejectFate(_first(_of_key(each, claim, of_keys, here) for each in of_keys.of_key(claim.key)), False)
    states = {_first((named.state(each, claim, batch_id), *_of_others(each, claim, of_keys, here))) for each in mine}
    return RejectFate("open" if "open" in states else _first(states), True)


def _of_key(reject: Row[Any], claim: AnsweringRow, of_keys: "AnsweredRejects", here: Collection[str]) -> str:
    """Return the fate of a row that names no reject, from an earlier reject of its key."""
    loaded_at, state = of_keys.loaded_at.get(reject.source_key, ""), of_keys.state(reject, claim)
    if state == "discarded":
        decided_at = max(loaded_at, of_keys.again_at) if loaded_at else ""
        return state if of_keys.discarded_at.get(reject.reject_id, LATEST) > decided_at else "open"
    if reject.reject_id in here and reject.reject_id not in claim.names:
        return "resubmitted"
    return "closed" if reject.state == "closed" and not loaded_at else state


def _of_others(
    reject: Row[Any], claim: AnsweringRow, of_keys: "AnsweredRejects", here: Collection[str]
) -> Iterable[str]:
    """Yield fates of a row that names a reject, from other files' rejects of that record which the person did not
    know.

    Of two rows of one file that answer two such rejects, one is sent. A row that names both rejects is sent for both,
    if both are open.
    """
    for other in of_keys.of_key(reject.source_key):
        state = of_keys.state(other, claim, since=claim.names[reject.reject_id])
        if other.batch_id == reject.batch_id or state == "discarded":
            continue
        is_ours = other.reject_id in here and other.reject_id not in claim.names
        goes_first = is_ours and other.reject_id < reject.reject_id
        yield "resubmitted" if goes_first else state


def _first(states: Iterable[str]) -> str:
    found = set(states)
    return next((state for state in DONE_WITH if state in found), "open")


class AnsweredRejects:
    """Some rejects of a target, source and type, with their answers.

    told: ids of the rejects that say that their record is known. loaded_at: by key, the last load of a version that
    was changed or taken back since. discarded_at: by id. again_at: the last time that a person had the batch loaded
    again.
    """

    def __init__(self, ledger: LedgerAccess, of: t.Of, found: Iterable[Row[Any]]) -> None:
        self.by_id = {each.reject_id: each for each in found}
        self._by_key = defaultdict[str | None, list[Row[Any]]](list)
        for each in self.by_id.values():
            self._by_key[each.source_key].append(each)
        self._answers = dict(answers_to(ledger, of, self.by_id)) if self.by_id else {}
        reason = t.reject_reason.c
        query = select(reason.reject_id).where(reason.rule_id.in_(TOLD))
        self.told = {name for (name,) in ledger.read_of(query, reason.reject_id, sorted(self.by_id))}
        self.loaded_at, self.discarded_at, self.again_at = dict[str, str](), dict[str, str](), ""

    @classmethod
    def ended(
        cls, ledger: LedgerAccess, of: t.Of, batch_id: str, keys: Collection[str | None], here: Collection[str]
    ) -> "AnsweredRejects":
        """Return the rejects of these keys, with the answers that count for a row of this batch.

        A closed or discarded reject is left out while another of its key and file is open. An open one that is not
        `here` is answered only by rows that were put in for it.
        """
        if not keys:
            return cls(ledger, of, ())
        reject, other = t.reject.c, t.reject.alias()
        same = ("target", "source", "resource_type", "source_key", "batch_id")
        beside = and_(*(other.c[name] == reject[name] for name in same), other.c.state.in_(OPEN))
        ended = and_(reject.state.in_(("discarded", "closed")), ~exists().where(beside))
        query = _rejects(of).where(or_(ended, reject.state.in_(OPEN)))
        rows = ledger.read_of(query, reject.source_key, sorted(map(str, keys)))
        found = cls(ledger, of, rows)
        for name, each in found.by_id.items():
            if each.state == "open" and name not in here:
                found._answers[name] = [answer for answer in found._answers.get(name, ()) if answer.is_put_in]
        former, decision = t.former.c, t.decision.c
        past = select(former.key, former.finished_at).where(t.of_stream(former, of), former.state.in_(LANDED))
        past = past.order_by(former.version)
        found.loaded_at.update(map(tuple, ledger.read_of(past, former.key, sorted(found._by_key))))
        discards = select(decision.subject, decision.at).where(decision.command == DISCARD)
        ids = [name for name, each in found.by_id.items() if each.state == "discarded"]
        found.discarded_at.update(map(tuple, ledger.read_of(discards, decision.subject, ids)))
        again = select(func.max(decision.at)).where(decision.target == of[0], decision.command == AGAIN)
        found.again_at = ledger.value(again.where(decision.subject == batch_id)) or "" if ids else ""
        return found

    def leave_out_others(self, ledger: LedgerAccess, target: str) -> None:
        """Keep only real answers by key. For open rejects, drop records that came before the reject. For rows with
        other keys than their reject, keep only the rows put in.
        """
        names = {each.batch_id for each in self.by_id.values()}
        names |= {each.batch_id for each in chain.from_iterable(self._answers.values())}
        came = came_at(ledger, target, names)
        for name, answers in self._answers.items():
            if self.by_id[name].state in OPEN:
                since = came[self.by_id[name].batch_id]
                self._answers[name] = [a for a in answers if a.is_put_in or came[a.batch_id] >= since]
        for name in under_other_keys(ledger, target, self.by_id):
            self._answers[name] = [answer for answer in self._answers.get(name, ()) if answer.is_put_in]

    def of_key(self, key: str | None) -> Sequence[Row[Any]]:
        return self._by_key.get(key, ()) if key is not None else ()

    def state(self, reject: Row[Any], claim: AnsweringRow, batch_id: str | None = None, since: str = "") -> str:
        """Return the fate of a reject from records under other keys than the claim's, outside `batch_id`, sent at or
        after `since`.

        The record of the reject's own key is no answer if the reject says that its key is known, or said so when the
        row was put in.
        """
        is_told = bool(claim.names.get(reject.reject_id, reject.reject_id in self.told))
        answers = [each for each in self._answers.get(reject.reject_id, ()) if each.sent_at >= since]
        others = {
            each.state
            for each in answers
            if each.key != claim.key and each.batch_id != batch_id and (each.is_put_in or not is_told)
        }
        if not others.isdisjoint(LANDED) or (
            reject.state == "closed" and not (answers or since) and reject.closed_by != batch_id
        ):
            return "closed"
        if not others.isdisjoint(UNDECIDED):
            return "resubmitted"
        return "discarded" if reject.state == "discarded" else "open"


def states_of(ledger: LedgerAccess, of: t.Of, batch_id: str, ids: Collection[str]) -> dict[str, str]:
    """Return the fate of rejects from records of other batches, by reject id.

    An open reject stays open beside a record of its key that was loaded before the reject came: that is not its
    answer.
    """
    rejects = AnsweredRejects(ledger, of, ledger.read_of(_rejects(of), t.reject.c.reject_id, sorted(ids)))
    rejects.leave_out_others(ledger, of[0])
    return {name: rejects.state(each, AnsweringRow(None), batch_id) for name, each in rejects.by_id.items()}


def answers_to(
    ledger: LedgerAccess, of: t.Of, rejects: Mapping[str, Row[Any]]
) -> Mapping[str, Sequence[AnsweringRecord]]:
    """Return the answers to rejects, by id."""
    record, again = t.record.c, t.resubmission.c
    put_in = select(again.reject_id, again.batch_id, again.line).where(again.target == of[0])
    places = ledger.read_of(put_in, again.reject_id, rejects)
    there = lines_at(ledger, of[0], places)
    keys = {at: {each.key for each in found} for at, found in there.items()}
    wanted = {each.source_key for each in rejects.values() if each.source_key} | {k for ks in keys.values() for k in ks}
    query = select(record.key, record.batch_id, record.state, record.first_attempt_at).where(t.of_stream(record, of))
    known = {each.key: each for each in ledger.read_of(query, record.key, sorted(wanted))}
    found = defaultdict[str, list[AnsweringRecord]](list)
    for name, reject in rejects.items():
        if own := known.get(reject.source_key):
            found[name].append(AnsweringRecord(own.key, own.batch_id, own.state, own.first_attempt_at or "", False))
    for place in places:
        for key in keys.get((place.batch_id, place.line), set()) & known.keys():
            each = known[key]
            found[place.reject_id].append(
                AnsweringRecord(key, place.batch_id, each.state, each.first_attempt_at or "", True)
            )
    return found


def came_at(ledger: LedgerAccess, target: str, batches: Collection[str]) -> Mapping[str, str]:
    """Return the moments at which batches were received, as UTC text; empty text for unknown batches."""
    received = select(t.batch.c.batch_id, t.batch.c.received_at).where(t.batch.c.target == target)
    rows = ledger.read_of(received, t.batch.c.batch_id, sorted(batches))
    return defaultdict(str, {name: at or "" for name, at in rows})


def _rejects(of: t.Of) -> Any:
    reject = t.reject.c
    columns = (reject.reject_id, reject.source_key, reject.state, reject.batch_id, reject.last_seen_at)
    return select(*columns, reject.closed_by_batch.label("closed_by")).where(t.of_stream(reject, of))
