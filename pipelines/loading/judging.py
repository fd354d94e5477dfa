"""Judge rows by what the ledger knows of their records. A load and its dry run judge alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipelines.feeds.mapping.origins import Origins
from pipelines.feeds.reading.chunks import LineNames
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import KnownRecord, Reason
from pipelines.ledger.standing import Standing, how_taken_back, standing_of, undone_at
from pipelines.ledger.states import UNDECIDED
from pipelines.loading.ended_records import EndedRejects
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.row import AcceptedRow
from pipelines.loading.verdicts import SENT, Verdicts
from pipelines.session.answered_rejects import LoadAnswers
from pipelines.validation.outcome import places_in

READ_BEFORE = (
    "an earlier version of the feed file read other content from this row, and that was loaded; correct the feed file"
    " and retry the reject, or discard the reject to keep what was loaded"
)


Reasons = Callable[[Sequence[AcceptedRow]], Mapping[str, Reason]]
"""Gives by key why rows are set aside."""


class JudgedRow(NamedTuple):
    """A row, the known record of its key, and a verdict: `sent`, `update`, `aside`, or the state that the row keeps.

    row: with the generation that it is sent in. reason: why the row is set aside.
    """

    row: AcceptedRow
    record: KnownRecord | None
    verdict: str
    reason: Reason | None = None


class RowJudge:
    """Judge of the rows of a batch. verdicts: judges the rows whose records are known. missing: gives the rows that
    refer to something missing at the target.
    """

    def __init__(self, batch: BatchRun, ledger: Ledger, safe: bool, answers: LoadAnswers, missing: Reasons) -> None:
        self._batch, self._ledger, self._missing = batch, ledger, missing
        of = (batch.target, batch.feed.source, batch.feed.resource)
        self._ended = EndedRejects(ledger, of, batch.batch_id, answers)
        self.verdicts = Verdicts(batch, ledger, safe, answers)
        self._origins = Origins(batch.feed.file, batch.feed.kind)
        self._undone_at: dict[str, str] = {}
        self._places: dict[str, LineNames] = {}

    def judge(self, rows: Sequence[AcceptedRow], known: Mapping[str, KnownRecord]) -> Iterator[JudgedRow]:
        """Yield each row with its verdict, in order. known: the records by key."""
        back = {key for key, record in known.items() if standing_of(record) is Standing.TAKEN_BACK}
        self.verdicts.by_hand = self._ended.by_hand(row for row in rows if row.key in back)
        judged = [self._judged(row, known.get(row.key)) for row in rows]
        new = [each.row for each in judged if each.verdict == "sent" and not (each.row.intended or each.row.replaces)]
        missing = self._missing([each.row for each in judged if _is_looked_up(each)])
        reasons = {
            key: reason._replace(column_name=self._origins.of(reason.expression or ""))
            for key, reason in missing.items()
        } | self._ended.reasons(new)
        for each in judged:
            reason = reasons.get(each.row.key)
            yield JudgedRow(each.row, each.record, "aside", reason) if reason else each

    def _judged(self, row: AcceptedRow, record: KnownRecord | None) -> JudgedRow:
        if record is None:
            return JudgedRow(row, None, "sent")
        verdict = self.verdicts.of(row, record)
        if verdict in SENT:
            return JudgedRow(self.verdicts.as_sent(verdict, row, record), record, "sent")
        if verdict == "taken back":
            return JudgedRow(row, record, "aside", self._taken_back(record))
        if verdict == "changed":
            return JudgedRow(row, record, "aside", self._changed(row, record))
        return JudgedRow(row, record, verdict)

    def _taken_back(self, record: KnownRecord) -> Reason:
        batch_id = record.batch_id
        if batch_id not in self._undone_at:
            self._undone_at |= {batch_id: ""} | undone_at(self._ledger, self._batch.target, [batch_id])
        how = how_taken_back(batch_id, self._undone_at[batch_id])
        said = f"the record was taken back {how}; chartferry rejects retry --taken-back loads it again"
        return Reason("TAKEN-BACK", None, None, said, True)

    def _changed(self, row: AcceptedRow, record: KnownRecord) -> Reason:
        key, labels = self._origins.key, self._origins.labels
        said = READ_BEFORE if self.verdicts.own(row, record) else self._known_from(record)
        return Reason("LEDGER-08", key.element, labels.get(key.name), said, False)

    def _known_from(self, record: KnownRecord) -> str:
        batch_id = record.batch_id
        if batch_id not in self._places:
            self._places[batch_id] = places_in(self._batch.folder.parent.parent / batch_id)
        place = self._places[batch_id].of(record.line)
        return f"the key is known with other content, from {place} of {batch_id}"


def _is_looked_up(judged: JudgedRow) -> bool:
    """True if the row is to be written, and no earlier request for it may have reached the target."""
    if judged.verdict == "update":
        return judged.record is not None and judged.record.state not in UNDECIDED
    return judged.verdict == "sent" and not judged.row.intended
