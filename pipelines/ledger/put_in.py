"""Rows that later files have put in for rejects: which of them stand for a reject now.

A file may put in several rows for one reject. Of those that were set aside, the key is on record.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Row, Select, and_, case, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.states import LANDED, UNDECIDED

LINES_A_QUERY = 10_000
Lines = Mapping[tuple[str, int], Sequence[Row[Any]]]
"""What stands on lines, by batch and line: key, state and finished_at of each record or outcome."""
_again = t.resubmission.c
PUT_IN: Select[Any] = (
    select(_again.reject_id, _again.batch_id, _again.line, _again.key, _again.seen_at, _again.tried_since)
    .join(t.reject, and_(t.reject.c.target == _again.target, t.reject.c.reject_id == _again.reject_id))
    .order_by(_again.seen_at, _again.batch_id, _again.line)
)


class PutIn:
    """The rows of one reject, by file in the order of time, and those of them that are at the target.

    at: what stands on their lines.
    """

    def __init__(self, rows: Collection[Row[Any]], at: Lines) -> None:
        self.files = [[row for row in rows if row.batch_id == name] for name in dict.fromkeys(r.batch_id for r in rows)]
        self._at = at
        self.there = {row: self.keys_on(row) for row in rows if has_landed(self._on(row), _since(row))}
        self._done = set(chain.from_iterable(self.there.values()))

    def _on(self, row: Row[Any]) -> Sequence[Row[Any]]:
        return self._at[row.batch_id, row.line]

    def keys_on(self, row: Row[Any]) -> set[str]:
        """Return the keys of what stands on a row's line."""
        return {each.key for each in self._on(row)}

    def keys_left(self) -> set[str]:
        """Return the keys of the rows that stand for the reject and are not there; an empty one could not be read. None
        where a key is not on record, or where a row was taken back: it was not wrong.
        """
        rows = [row for row in self.left(self.standing()) if {each.state for each in self._on(row)} != {"undone"}]
        return set().union(*(self.keys_on(row) or {row.key} - {None} for row in rows))

    def are_to_come(self) -> bool:
        """True if it is open what becomes of a row of the last file; beside a wrong one, of a row that was sent."""
        tried = [row for row in self.files[-1] if not _is_wrong(row)]
        is_alone = len(tried) == len(self.files[-1])
        return any(is_to_come(self._on(row), _since(row) if is_alone else "") for row in tried)

    def closed_by(self) -> str | None:
        """Return the last file that brought one of the rows to the target; None if some were wrong beside it, and are
        left.
        """
        there = [row.batch_id for row in self.there]
        return there[-1] if there and not self.is_short() else None

    def left(self, rows: Iterable[Row[Any]]) -> list[Row[Any]]:
        """Return those of some rows that are not at the target, nor has a row with such a key come there instead."""
        return [row for row in rows if row not in self.there and row.key not in self._done]

    def standing(self) -> list[Row[Any]]:
        """Return the rows that stand for the reject now: of the last file that has some left, these."""
        found = (left for file in reversed(self.files) if (left := self.left(file)))
        return next(found, self.files[-1])

    def is_short(self) -> bool:
        """True if fewer rows have come to the target than were left as wrong by the last file that had several."""
        later = set[str]()
        for file in reversed(self.files):
            left = [row for row in self.left(file) if _is_wrong(row)]
            if left:
                own = {row.key for row in file}
                return len(file) > 1 and len(left) > len(later - own)
            later.update(*(self.there.get(row, ()) for row in file))
        return False


def _is_wrong(row: Row[Any]) -> bool:
    return row.tried_since is None and row.key is not None


def _since(row: Row[Any]) -> str:
    """Return the moment since which what comes to a row's line is what became of the row."""
    return str(row.seen_at if row.tried_since is None else row.tried_since)


def has_landed(here: Iterable[Row[Any]], since: str) -> bool:
    """True if a record of a line has come to the target since a moment."""
    return any(each.state in LANDED and (each.finished_at or "") > since for each in here)


def is_to_come(here: Collection[Row[Any]], since: str) -> bool:
    """True if it is open what becomes of a row that is tried since a moment; an empty one: what is there is all."""
    is_decided = not since or any((each.finished_at or "") > since for each in here)
    return not is_decided or any(each.state in UNDECIDED for each in here)


def put_in(ledger: LedgerAccess, rows: Iterable[Row[Any]], target: str) -> dict[str, PutIn]:
    """Return what rows of `PUT_IN` say of each reject."""
    of_reject = defaultdict[str, list[Row[Any]]](list)
    for row in rows:
        of_reject[row.reject_id].append(row)
    at = lines_at(ledger, target, chain.from_iterable(of_reject.values()))
    return {name: PutIn(some, at) for name, some in of_reject.items()}


def put_in_for(ledger: LedgerAccess, target: str, ids: Iterable[str]) -> dict[str, PutIn]:
    """Return what has been put in for these rejects, by id."""
    return put_in(ledger, ledger.read_of(PUT_IN.where(_again.target == target), _again.reject_id, sorted(ids)), target)


def under_other_keys(ledger: LedgerAccess, target: str, rejects: Mapping[str, Row[Any]]) -> set[str]:
    """Return those of these rejects of which a row that is not there has another key now.

    A record of the first key says nothing of that row.
    """
    found = put_in_for(ledger, target, rejects)
    return {name for name, each in found.items() if each.keys_left() - {rejects[name].source_key}}


def lines_at(ledger: LedgerAccess, target: str, places: Iterable[Any]) -> Lines:
    """Return what stands on the lines of these places: a batch is read through for many lines at once.

    Of a line whose record is from another, the outcome says what came of it, unless the record is not there any more.
    """
    found, lines = defaultdict[tuple[str, int], list[Row[Any]]](list), defaultdict[str, set[int]](set)
    for each in places:
        lines[each.batch_id].add(each.line)
    version, record = t.versions.c, t.records.c
    same = and_(record.stream_id == version.stream_id, record.key == version.key)
    is_gone = and_(version.state.in_(LANDED), record.state.not_in(LANDED))
    now = case((is_gone, record.state), else_=version.state).label("state")
    outcomes = select(version.line, version.key, now, version.finished_at).outerjoin_from(t.versions, t.records, same)
    own = select(record.line, record.key, record.state, record.finished_at)
    for batch_id, wanted in lines.items():
        for table, query in ((t.records, own), (t.versions, outcomes.where(t.IS_OUTCOME))):
            there = query.where(t.of_batch(table, target, batch_id))
            for each in ledger.read_of(there, table.c.line, sorted(wanted), LINES_A_QUERY):
                found[batch_id, each.line].append(each)
    return found
