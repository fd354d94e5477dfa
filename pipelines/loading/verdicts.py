"""Decide what to do with a row from its record in the ledger, and make the row that is sent for a known record."""

from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select

from pipelines.ledger import tables as t
from pipelines.ledger.doubts import went_without_name
from pipelines.ledger.former_versions import earlier_versions
from pipelines.ledger.lease import LATEST
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.standing import Standing, standing_of
from pipelines.ledger.states import NOT_THERE, UNDECIDED
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.row import AcceptedRow
from pipelines.session.answered_rejects import LoadAnswers

SENT = ("send", "anew", "supersede")
"""Verdicts by which a row is sent: as it is; in place of a record taken back; in place of one that is there."""


class Verdicts:
    """Verdicts on the rows of a batch.

    safe: True if sending a row in doubt again cannot make a second resource. resend: keys of rows that a look-up has
    freed to be sent again. by_hand: keys of rows that a person put in for open rejects.
    """

    def __init__(self, batch: BatchRun, ledger: Ledger, safe: bool, answers: LoadAnswers) -> None:
        self.batch, self.safe, self._answers = batch, safe, answers
        self.resend: set[str] = set()
        self.by_hand: set[str] = set()
        self._ledger, self._of = ledger, (batch.target, batch.feed.source, batch.feed.resource)
        self._batches: dict[str, set[str]] = {}

    def of(self, row: AcceptedRow, record: KnownRecord) -> str:
        """Return the verdict on a row: one of `SENT`, `update`, `changed` or `taken back` (both are set aside), or the
        state that it keeps.

        `undone` is a row whose record was taken back after the same file had made it.
        """
        if self._of[2] == "Task" and record.state in UNDECIDED and record.resource_id is not None:
            return "update"
        standing = standing_of(record)
        if standing in (Standing.ABSENT, Standing.WAITING):
            return "send"
        same = record.holds(row.content_hash)
        if standing is Standing.TAKEN_BACK:
            return self._taken_back(row, record, same)
        if standing is Standing.THERE:
            return "unchanged" if same or self._is_of_another_feed(row, record) else self._policy(row, record)
        return self._in_doubt(row, record, same)

    def _in_doubt(self, row: AcceptedRow, record: KnownRecord, same: bool) -> str:
        if not same and not self.own(row, record):
            return "changed"
        again = same and self.safe and not went_without_name(self._ledger, self._of[0], self._of[2], record)
        return "send" if again or row.key in self.resend else "in_doubt"

    def _taken_back(self, row: AcceptedRow, record: KnownRecord, same: bool) -> str:
        """Decide on a row of a record taken back: a corrected row makes it anew, an equal one only if a person says
        so.
        """
        if self.own(row, record):
            return "undone"
        said = self.batch.taken_back or self.batch.feed.file.taken_back == "load"
        said = said or row.key in self.by_hand
        corrected = not same and not self._is_older(row, record)
        return "anew" if said or corrected else "taken back"

    def is_read_otherwise(self, row: AcceptedRow, record: KnownRecord) -> bool:
        """True if an `unchanged` row has other content than its record, because the feed file changed in between."""
        return not record.holds(row.content_hash) and self._is_of_another_feed(row, record)

    def _is_of_another_feed(self, row: AcceptedRow, record: KnownRecord) -> bool:
        other = not self.batch.remap and self.own(row, record) and record.feed_hash != self.batch.feed.hash
        # For a reject that waits for a person, the policy decides again.
        return other and not self._has_reject(row, *OPEN)

    def _policy(self, row: AcceptedRow, record: KnownRecord) -> str:
        """Return the feed's policy for other content under a known key. An older file never overrides a newer one."""
        there = record.resource_id is not None and not self._had_another_key(row)
        match self.batch.feed.file.changed, self.batch.feed.resource:
            case "skip", _:
                return "skipped"
            case "update", "Task" if there:
                return "skipped" if self._is_older(row, record) else "update"
            case "supersede", "QuestionnaireResponse" if there:
                return "skipped" if self._is_older(row, record) else "supersede"
        return "changed"

    def _had_another_key(self, row: AcceptedRow) -> bool:
        """True if a row corrects a reject of another key: it may be only a part of the record with this key."""
        if not (ids := self._answers.of_line(row.line)):
            return False
        query = select(t.reject.c.source_key).where(
            t.reject.c.target == self.batch.target, t.reject.c.reject_id.in_(ids)
        )
        keys = {key for (key,) in self._ledger.read(query)}
        return bool(keys) and row.key not in keys

    def _is_older(self, row: AcceptedRow, record: KnownRecord) -> bool:
        """True if this row came before, and a later file has changed its record or closed its reject since."""
        if self.own(row, record):
            return False
        of_later_file = record.batch_id in self._later_files or self._was_changed_since(row, record)
        return of_later_file or self._has_reject(row, "closed")

    def _was_changed_since(self, row: AcceptedRow, record: KnownRecord) -> bool:
        if not self._came_before:
            return False
        if self._had_record(row):
            return True
        seen_at = self._first_seen(self.batch.batch_id, row.line, row.key)
        last = self._first_seen(record.batch_id, record.line, row.key) or LATEST
        return seen_at is not None and seen_at < min(last, record.first_attempt_at or "")

    def _had_record(self, row: AcceptedRow) -> bool:
        """True if the record was this row's, and another row has changed it since. No times are compared for that."""
        former = t.former.c
        here = (former.batch_id.in_(self._same_file(self.batch.batch_id)), former.line == row.line)
        query = select(former.version).where(t.of_stream(former, self._of), former.key == row.key, *here)
        return self._ledger.value(query.limit(1)) is not None

    def _first_seen(self, batch_id: str, line: int, key: str) -> str | None:
        """Return when a row of a batch's file had its first outcome, if its record was or is of another line, or was
        made anew since.
        """
        former = t.former.c
        query = self._appearances(batch_id).where(t.repeat.c.line == line, t.repeat.c.key == key)
        here = (former.batch_id.in_(self._same_file(batch_id)), former.line == line, former.key == key)
        earlier = select(former.finished_at).where(t.of_stream(former, self._of), *here).order_by(former.finished_at)
        times = [at for each in (query, earlier) for (at,) in self._ledger.read(each.limit(1))]
        return min(filter(None, times), default=None)

    def _has_reject(self, row: AcceptedRow, *states: str) -> bool:
        """True if this row has a reject in one of these states."""
        if self._reject_states.isdisjoint(states):
            return False
        reject = t.reject.c
        here = (reject.line == row.line, reject.source_key == row.key, reject.state.in_(states))
        return self._ledger.value(select(reject.reject_id).where(*self._of_rejects(), *here)) is not None

    @cached_property
    def _later_files(self) -> set[str]:
        """Return the batches of this source and type whose files came later, as after a batch that waited."""
        batch = t.batch.c
        of_stream = t.of_stream(batch, self._of)
        received = select(batch.received_at).where(of_stream, batch.batch_id == self.batch.batch_id).scalar_subquery()
        later = self._ledger.read(select(batch.batch_id).where(of_stream, batch.received_at > received))
        return {str(name) for (name,) in later} - self._same_file(self.batch.batch_id)

    @cached_property
    def _came_before(self) -> bool:
        """True if the ledger has rows of this file whose records belong to another line now."""
        return self._ledger.value(self._appearances(self.batch.batch_id).limit(1)) is not None

    @cached_property
    def _reject_states(self) -> set[str]:
        """Return the states of the file's rejects, read once in a load."""
        return {state for (state,) in self._ledger.read(select(t.reject.c.state).where(*self._of_rejects()).distinct())}

    def _of_rejects(self) -> tuple[ColumnElement[bool], ...]:
        return t.of_stream(t.reject.c, self._of), t.reject.c.batch_id.in_(self._same_file(self.batch.batch_id))

    def _appearances(self, batch_id: str) -> Select[Any]:
        """Select when rows of a batch's file had their first outcomes, in the order of time."""
        of_file = (t.repeat.c.target == self.batch.target, t.repeat.c.batch_id.in_(self._same_file(batch_id)))
        return select(t.repeat.c.finished_at).where(*of_file).order_by(t.repeat.c.finished_at)

    def _same_file(self, batch_id: str) -> set[str]:
        """Return all batches of a batch's file: several if its feed had another name, or if it also came packed."""
        if batch_id not in self._batches:
            batch, target = t.batch.c, self._of[0]
            # By the file's own bytes too: for a packed file received by an earlier version, the content's hash is not
            # recorded.
            alike = [
                content == select(content).where(batch.target == target, batch.batch_id == batch_id).scalar_subquery()
                for content in (func.coalesce(batch.content_sha256, batch.file_sha256), batch.file_sha256)
            ]
            query = select(batch.batch_id).where(t.of_stream(batch, self._of), or_(*alike))
            self._batches[batch_id] = {batch_id, *(name for (name,) in self._ledger.read(query))}
        return self._batches[batch_id]

    def own(self, row: AcceptedRow, record: KnownRecord) -> bool:
        """True if a record is from this row."""
        return record.batch_id == self.batch.batch_id and record.line == row.line

    def as_sent(self, verdict: str, row: AcceptedRow, record: KnownRecord) -> AcceptedRow:
        """Return the row to send, by a verdict of `SENT`. A row that replaces another has the next generation."""
        if verdict == "send":
            return self._again(row, record)
        change = "first" if verdict == "supersede" else "anew"
        return row._replace(generation=record.generation + 1, known=True, change=change)

    def _again(self, row: AcceptedRow, record: KnownRecord) -> AcceptedRow:
        """Return the row to send for a known record: with the record's generation and first moment."""
        doubtful = record.state not in NOT_THERE
        stays = doubtful or record.state == "planned"
        # An earlier version that is still there is to be taken back once this one is there.
        supersedes = record.generation > 1 and earlier_versions(self._ledger, *self._of, [record.key])
        return row._replace(
            generation=record.generation,
            first_attempt_at=record.first_attempt_at or row.first_attempt_at,
            known=True,
            intended=doubtful,
            elsewhere=stays and not self.own(row, record),
            change="again" if supersedes else "",
        )
