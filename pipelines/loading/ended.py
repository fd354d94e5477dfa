"""Records that a person is done with, discarded or loaded under another key: their rows do not go by themselves.

Nor do rows that name a reject which is done with: one reject is answered once, whatever keys its corrections have.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from sqlalchemy import ColumnElement, and_, exists, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.rejects import OPEN, answered_by, on_the_way
from pipelines.ledger.rows import KnownRecord, Reason
from pipelines.loading.row import Row
from pipelines.session.answers import Answers

Of = tuple[str, str, str]
SENTENCES = {
    "discarded": "the record was discarded by hand; to load it after all, put its row in with the _reject_id of this",
    "closed": "a correction of the record was loaded under another key; discard this, or put its row in with the "
    "_reject_id of this to load it as well",
    "resubmitted": "a correction of the record is on its way under another key, and its outcome is not known yet; "
    "discard this, or put its row in with the _reject_id of this to load it as well",
}
ENDED = ("discarded", "closed")
NAMED = {
    "discarded": "the reject that it names was discarded by hand; to load it after all, put its row in with the "
    "_reject_id of this",
    "closed": "another record was loaded for the reject that it names; discard this, or put its row in with the "
    "_reject_id of this to load it as well",
    "resubmitted": "another record is on its way for the reject that it names, and its outcome is not known yet; "
    "discard this, or put its row in with the _reject_id of this to load it as well",
}


class Ended:
    """The rejects `of` a target, source and resource type that are done with, asked for by a load of a batch."""

    def __init__(self, ledger: LedgerAccess, of: Of, batch_id: str, answers: Answers) -> None:
        self._ledger, self._of, self._batch_id, self._answers = ledger, of, batch_id, answers
        query = select(t.reject.c.reject_id).where(*self._ours(), t.reject.c.state.in_(list(SENTENCES)))
        self._none = ledger.value(query.limit(1)) is None and not answers

    def reasons(self, rows: Sequence[Row], known: Mapping[str, KnownRecord]) -> dict[str, Reason]:
        """By key, why a row that could be sent is set aside instead."""
        if self._none:
            return {}
        may_go = [row for row in rows if _may_go(known.get(row.key))]
        named = {row.key: state for row in may_go if (state := self._named(row))}
        asked = [row.key for row in may_go if row.key not in named]
        said = {key: SENTENCES[state] for key, state in self._states(asked)}
        said |= {key: NAMED[state] for key, state in named.items() if state in NAMED}
        return {key: reason_of(sentence) for key, sentence in said.items()}

    def is_by_hand(self, row: Row) -> bool:
        """True if a person put the row in for a reject that waits for it. One that is tried again answers its own."""
        return self._named(row) == "open"

    def _named(self, row: Row) -> str | None:
        """Return the state of the reject that a row names, `open` if it may answer that; None where it names none."""
        return state_of(self._answers.of_line(row.line), self._state_of)

    @cached_property
    def _state_of(self) -> Mapping[str, str]:
        """By id, the states of other batches' rejects that rows of this name. What it has closed itself is `open`."""
        names = {name for each in self._answers.by_line.values() for name in each}
        return answered_by(self._ledger, self._of, self._batch_id, names) if names else {}

    def _states(self, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield key and state of rejects that a person closed, or has put a record of another key in for. A closed one
        says nothing while another of its key and file is open.
        """
        reject, other = t.reject.c, t.reject.alias()
        still_open = exists().where(
            and_(
                other.c.target == reject.target,
                other.c.source == reject.source,
                other.c.resource_type == reject.resource_type,
                other.c.source_key == reject.source_key,
                other.c.batch_id == reject.batch_id,
                other.c.state.in_(OPEN),
            )
        )
        query = select(reject.source_key, reject.state).where(*self._ours(), reject.state.in_(ENDED))
        yield from self._ledger.read_of(query.where(~still_open), reject.source_key, keys)
        query = select(reject.source_key, reject.reject_id).where(*self._ours(), reject.state == "resubmitted")
        key_of = {name: key for key, name in self._ledger.read_of(query, reject.source_key, keys)}
        for name in on_the_way(self._ledger, self._of[0], self._batch_id, sorted(key_of)) if key_of else ():
            yield key_of[name], "resubmitted"

    def _ours(self) -> tuple[ColumnElement[bool], ...]:
        target, source, resource_type = self._of
        reject = t.reject.c
        return reject.target == target, reject.source == source, reject.resource_type == resource_type


def reason_of(sentence: str) -> Reason:
    return Reason("LEDGER-07", None, None, sentence, False)


def state_of(names: Sequence[str], states: Mapping[str, str]) -> str | None:
    """Return the state of what a row names, by those of rejects: `open` if it may answer one; None for no reject."""
    found = {states[name] for name in names if name in states}
    return next((state for state in ("open", *NAMED) if state in found), None)


def _may_go(record: KnownRecord | None) -> bool:
    """True if nothing of a record is at the target, nor ever was."""
    return record is None or (record.state == "refused" and record.generation == 1)
