"""Rows that later files have put in for rejects: which of them stand for a reject now.

A file may put in several rows for one reject. Of those that were set aside, the key is on record.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, Select, and_, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.states import LANDED

LINES: tuple[tuple[Any, ...], ...] = ((t.records,), (t.versions, t.IS_OUTCOME))
"""Tables of what stands on the lines of a batch, each with a condition if need be."""
LINES_A_QUERY = 10_000
UNDONE = {"undone"}
_again = t.resubmission.c
PUT_IN: Select[Any] = (
    select(_again.reject_id, _again.batch_id, _again.line, _again.key, t.reject.c.source_key)
    .join(t.reject, and_(t.reject.c.target == _again.target, t.reject.c.reject_id == _again.reject_id))
    .order_by(_again.seen_at, _again.batch_id, _again.line)
)


class PutIn:
    """The rows of one reject, by file in the order of time, and those of them that are at the target."""

    def __init__(self, rows: Collection[Row[Any]], there: Mapping[tuple[str, int], set[str]]) -> None:
        self.files = [list(some) for _, some in groupby(rows, attrgetter("batch_id"))]
        self.there = {row: there[row.batch_id, row.line] for row in rows if (row.batch_id, row.line) in there}
        self._done = set(chain.from_iterable(self.there.values()))

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
            left = [row for row in self.left(file) if row.key is not None]
            if left:
                own = {row.key for row in file}
                return len(file) > 1 and len(left) > len(later - own)
            later.update(*(self.there.get(row, ()) for row in file))
        return False


def put_in(ledger: LedgerAccess, rows: Iterable[Row[Any]], target: str) -> dict[str, PutIn]:
    """Return what rows of `PUT_IN` say of each reject."""
    of_reject = defaultdict[str, list[Row[Any]]](list)
    for row in rows:
        of_reject[row.reject_id].append(row)
    every = [row for some in of_reject.values() for row in some]
    states, keys = on_lines(ledger, target, every, "state"), on_lines(ledger, target, every, "key")
    there = {place: keys[place] for place, found in states.items() if not found.isdisjoint(LANDED)}
    return {name: PutIn(some, there) for name, some in of_reject.items()}


def put_in_for(ledger: LedgerAccess, target: str, ids: Iterable[str]) -> dict[str, PutIn]:
    """Return what has been put in for these rejects, by id."""
    return put_in(ledger, ledger.read_of(PUT_IN.where(_again.target == target), _again.reject_id, sorted(ids)), target)


def keys_of_rows(ledger: LedgerAccess, target: str, ids: Iterable[str]) -> dict[str, set[str]]:
    """Return the keys of the rows that were put in for these rejects and are not there, by id; empty ones could not be
    read. None of a reject whose rows' keys are not on record, or whose rows were taken back: they were not wrong.
    """
    found = put_in_for(ledger, target, ids)
    left = {name: each.left(each.standing()) for name, each in found.items()}
    every = [row for some in left.values() for row in some]
    keys, states = on_lines(ledger, target, every, "key"), on_lines(ledger, target, every, "state")
    rows = {name: [row for row in some if states[row.batch_id, row.line] != UNDONE] for name, some in left.items()}
    of = {name: [keys[row.batch_id, row.line] or {row.key} - {None} for row in some] for name, some in rows.items()}
    return {name: set().union(*some) for name, some in of.items() if any(some)}


def under_other_keys(ledger: LedgerAccess, target: str, rejects: Mapping[str, Row[Any]]) -> set[str]:
    """Return those of these rejects of which a row that is not there has another key now.

    A record of the first key says nothing of that row.
    """
    found = keys_of_rows(ledger, target, rejects)
    return {name for name, keys in found.items() if keys - {rejects[name].source_key}}


def closed_by_rows(ledger: LedgerAccess, target: str, keys: Iterable[str], batches: Collection[str]) -> set[str]:
    """Return the rejects that these batches have closed, for which rows with these keys had been put in by others."""
    of_reject = and_(t.reject.c.target == _again.target, t.reject.c.reject_id == _again.reject_id)
    query = select(_again.reject_id, t.reject.c.closed_by_batch).join(t.reject, of_reject)
    found = ledger.read_of(query.where(_again.target == target, t.reject.c.state == "closed"), _again.key, keys)
    return {name for name, batch_id in found if batch_id in batches}


def short_of_rows(ledger: LedgerAccess, target: str, ids: Iterable[str]) -> set[str]:
    """Return those of these rejects for which rows are left that were wrong beside others in one file."""
    return {name for name, each in put_in_for(ledger, target, ids).items() if each.is_short()}


def on_lines(ledger: LedgerAccess, target: str, at: Iterable[Any], column: str) -> Mapping[tuple[str, int], set[str]]:
    """Return the keys, or the states, of what stands on these lines, by batch and line: a batch is read through for
    many lines at once.
    """
    found = defaultdict[tuple[str, int], set[str]](set)
    lines = defaultdict[str, set[int]](set)
    for each in at:
        lines[each.batch_id].add(each.line)
    for batch_id, wanted in lines.items():
        for table, *which in LINES:
            there = select(table.c.line, table.c[column]).where(t.of_batch(table, target, batch_id), *which)
            for line, said in ledger.read_of(there, table.c.line, sorted(wanted), LINES_A_QUERY):
                found[batch_id, line].add(said)
    return found
