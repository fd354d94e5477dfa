"""Write the outcomes of rows that were sent, and the rejects of rows that were set aside."""

from collections.abc import Sequence

from pipelines.feeds.mapping.origins import Origins
from pipelines.ledger.former_versions import restore
from pipelines.ledger.rows import KnownRecord, Outcome, Reason, Reject, SoFar
from pipelines.ledger.states import LANDED, UNDECIDED
from pipelines.loading.load import Load
from pipelines.loading.load_counts import LoadCounts
from pipelines.loading.refusal_reasons import reasons_of
from pipelines.loading.repeats import Repeats, as_repeat
from pipelines.loading.row import AcceptedRow, RowResult, outcome_of
from pipelines.session.answered_rejects import LoadAnswers

Results = Sequence[tuple[AcceptedRow, RowResult]]


class Outcomes:
    """Writer of the outcomes and rejects of one load. loaded: the load's counts, to which rejects add their reasons."""

    def __init__(self, load: Load, loaded: LoadCounts, answers: LoadAnswers, repeats: Repeats) -> None:
        self._load, self._loaded, self._answers, self._repeats = load, loaded, answers, repeats
        self._origins = Origins(load.batch.feed.file, load.batch.feed.kind)

    def write(self, results: Results, so_far: SoFar | None) -> None:
        """Write the results of rows, set refused rows aside, and update the run's counts."""
        ledger, of = self._load.ledger, self._load.of
        back = {row.key for row, r in results if row.replaces and r.state == "refused"}
        outcomes = [
            Outcome(row.key, row.generation, r.state, r.resource_id, r.status)
            for row, r in results
            if row.key not in back
        ]
        ledger.settle(*of, outcomes, so_far)
        if back:
            restore(ledger, *of, back)
            self._repeats.note([as_repeat(row, "refused", None) for row, _ in results if row.key in back])
        refused = [(row, r) for row, r in results if r.state == "refused"]
        self.set_aside([(row, reasons_of(r, row.body, self._origins)) for row, r in refused], "load")
        known_now = [(row, r) for row, r in results if row.elsewhere and r.state not in UNDECIDED and not row.change]
        there = (*LANDED, "undone")  # a row whose record belongs to another batch is reported as unchanged
        states = [(row, "unchanged" if r.state in there else r.state, r.resource_id) for row, r in known_now]
        self._repeats.note([as_repeat(*each) for each in states])

    def set_aside(self, rows: Sequence[tuple[AcceptedRow, Sequence[Reason]]], stage: str) -> None:
        """Write rows as rejects of a stage, each with its reasons."""
        if rows:
            for _, reasons in rows:
                self._loaded.reasons.update({reason.rule_id for reason in reasons})
            rejects = [self._reject(row, stage, reasons) for row, reasons in rows]
            self._load.ledger.reject(*self._load.of, self._load.batch.batch_id, rejects)

    def _reject(self, row: AcceptedRow, stage: str, reasons: Sequence[Reason]) -> Reject:
        about = (row.patient_id, row.source_at, row.amount_cents)
        answers = list(self._answers.of_line(row.line))
        return Reject(row.line, row.lines, row.key, stage, *about, reasons, answers, row.content_hash)

    def still_asked(self, results: Results) -> list[tuple[AcceptedRow, RowResult]]:
        """Return the certain results that the ledger lacks, of rows whose intents are their records' last."""
        known = self._load.ledger.known(*self._load.of, [row.key for row, _ in results])
        return [(row, result) for row, result in results if _tells(row, result, known[row.key])]


def of_changes(results: Results) -> Results:
    """Return the results, with state `superseded` for rows that replaced earlier versions."""
    there = ("created", "adopted")
    return [(row, r._replace(state="superseded") if row.replaces and r.state in there else r) for row, r in results]


def refused_for(reason: Reason) -> RowResult:
    """Return the result of a row that this program refuses."""
    return RowResult("refused", outcome=outcome_of(reason.rule_id, reason.message, reason.expression))


def _tells(row: AcceptedRow, result: RowResult, record: KnownRecord) -> bool:
    """True if a result is certain and the ledger lacks it. Refused changes are left to the loader that took over."""
    same = (record.generation, record.content_hash) == (row.generation, row.content_hash)
    fact = result.state not in UNDECIDED and not (row.replaces and result.state == "refused")
    return same and fact and record.state in UNDECIDED
