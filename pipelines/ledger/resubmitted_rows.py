"""Rows that later files have put in for rejects: find those that represent a reject now.

A file may put in several rows for one reject. The ledger has the keys of the rows that were set aside.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Row, Select, and_, case, false, func, not_, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.states import LANDED, NOT_MADE, UNDECIDED

LINES_A_QUERY = 10_000
Lines = Mapping[tuple[str, int], Sequence[Row[Any]]]
"""Records and outcomes by batch and line. Each has key, state and finished_at."""
_again = t.resubmission.c
PUT_IN: Select[Any] = (
    select(_again.reject_id, _again.batch_id, _again.line, _again.key, _again.seen_at, _again.tried_since)
    .join(t.reject, and_(t.reject.c.target == _again.target, t.reject.c.reject_id == _again.reject_id))
    .order_by(_again.seen_at, _again.batch_id, _again.line)
)


class PutIn:
    """The rows put in for one reject, by file in the order of time, and the rows of them that are at the target.

    at: the records and outcomes on their lines.
    """

    def __init__(self, rows: Collection[Row[Any]], at: Lines) -> None:
        self.files = [[row for row in rows if row.batch_id == name] for name in dict.fromkeys(r.batch_id for r in rows)]
        self._at = at
        self.there = {row: self.keys_on(row) for row in rows if has_landed(self._on(row), _since(row))}
        self._done = set(chain.from_iterable(self.there.values()))

    def _on(self, row: Row[Any]) -> Sequence[Row[Any]]:
        return self._at[row.batch_id, row.line]

    def keys_on(self, row: Row[Any]) -> set[str]:
        """Return the keys of the records and outcomes on a row's line."""
        return {each.key for each in self._on(row)}

    def keys_left(self) -> set[str]:
        """Return the keys of the rows that represent the reject and are not at the target. An empty key could not be
        read.

        A row whose key the ledger does not have gives no key. A row that was taken back gives none either, since it
        was not wrong.
        """
        rows = [row for row in self.left(self.standing()) if {each.state for each in self._on(row)} != {"undone"}]
        return set().union(*(self.keys_on(row) or {row.key} - {None} for row in rows))

    def are_to_come(self) -> bool:
        """True if the outcome of a row of the last file is open. Beside a wrong row, only rows that were sent count."""
        tried = [row for row in self.files[-1] if not _is_wrong(row)]
        is_alone = len(tried) == len(self.files[-1])
        return any(is_to_come(self._on(row), _since(row) if is_alone else "") for row in tried)

    def closed_by(self) -> str | None:
        """Return the last file that brought a row to the target; None if wrong rows beside it remain."""
        there = [row.batch_id for row in self.there]
        return there[-1] if there and not self.is_short() else None

    def left(self, rows: Iterable[Row[Any]]) -> list[Row[Any]]:
        """Return the rows that are not at the target, and whose key has not come there by another row."""
        return [row for row in rows if row not in self.there and row.key not in self._done]

    def standing(self) -> list[Row[Any]]:
        """Return the rows that represent the reject now: those left of the last file that has some left."""
        found = (left for file in reversed(self.files) if (left := self.left(file)))
        return next(found, self.files[-1])

    def is_short(self) -> bool:
        """True if fewer rows have come to the target than the last file with several rows has left wrong."""
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
    """Return the moment after which an outcome on a row's line is that row's outcome."""
    return str(row.seen_at if row.tried_since is None else row.tried_since)


def has_landed(here: Iterable[Row[Any]], since: str) -> bool:
    """True if a record of a line has come to the target after a moment."""
    return any(each.state in LANDED and (each.finished_at or "") > since for each in here)


def is_to_come(here: Collection[Row[Any]], since: str) -> bool:
    """True if the outcome of a row, tried since a moment, is open. If that is empty, the line's records decide."""
    is_decided = not since or any((each.finished_at or "") > since for each in here)
    return not is_decided or any(each.state in UNDECIDED for each in here)


def put_in(ledger: LedgerAccess, rows: Iterable[Row[Any]], target: str) -> dict[str, PutIn]:
    """Return the rows of `PUT_IN` as one `PutIn` for each reject."""
    of_reject = defaultdict[str, list[Row[Any]]](list)
    for row in rows:
        of_reject[row.reject_id].append(row)
    at = lines_at(ledger, target, chain.from_iterable(of_reject.values()))
    return {name: PutIn(some, at) for name, some in of_reject.items()}


def put_in_for(ledger: LedgerAccess, target: str, ids: Iterable[str]) -> dict[str, PutIn]:
    """Return the rows put in for these rejects, by reject id."""
    return put_in(ledger, ledger.read_of(PUT_IN.where(_again.target == target), _again.reject_id, sorted(ids)), target)


def under_other_keys(ledger: LedgerAccess, target: str, rejects: Mapping[str, Row[Any]]) -> set[str]:
    """Return the rejects with a row under another key that is not at the target.

    A record of the reject's first key says nothing about that row.
    """
    found = put_in_for(ledger, target, rejects)
    return {name for name, each in found.items() if each.keys_left() - {rejects[name].source_key}}


def _outcomes_on_lines() -> Select[Any]:
    """Return the query for outcomes of lines whose record is of another line now.

    Such an outcome is the state of the version, unless the record has left the target. A record that is being changed,
    superseded or made anew has not left it.
    """
    version, record, former = t.versions.c, t.records.c, t.versions.alias().c
    same = and_(record.stream_id == version.stream_id, record.key == version.key)
    of_same = (former.stream_id == version.stream_id, former.key == version.key, former.fate.is_not(None))
    last = select(former.fate).where(*of_same).order_by(former.version.desc()).limit(1).scalar_subquery()
    is_changing = and_(record.state.in_(NOT_MADE), last != "withdrawn")
    is_gone = and_(version.state.in_(LANDED), record.state.not_in(LANDED), not_(func.coalesce(is_changing, false())))
    now = case((is_gone, record.state), else_=version.state).label("state")
    found = select(version.line, version.key, now, version.finished_at).outerjoin_from(t.versions, t.records, same)
    return found.where(t.IS_OUTCOME)


_record = t.records.c
ON_LINES = (
    (t.records, select(_record.line, _record.key, _record.state, _record.finished_at)),
    (t.versions, _outcomes_on_lines()),
)
"""The queries for the records and the outcomes on lines, each with its table."""


def lines_at(ledger: LedgerAccess, target: str, places: Iterable[Any]) -> Lines:
    """Return the records and outcomes on the lines of these places. It reads a batch for many lines at once."""
    found, lines = defaultdict[tuple[str, int], list[Row[Any]]](list), defaultdict[str, set[int]](set)
    for each in places:
        lines[each.batch_id].add(each.line)
    for batch_id, wanted in lines.items():
        for table, query in ON_LINES:
            there = query.where(t.of_batch(table, target, batch_id))
            for each in ledger.read_of(there, table.c.line, sorted(wanted), LINES_A_QUERY):
                found[batch_id, each.line].append(each)
    return found
