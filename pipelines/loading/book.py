"""The book of a load: entries before and after rows are sent, in one commit each, rejects, and the load's counts.

`intake.py` judges which rows are sent; `requests_under_way.py` sends them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pipelines.feeds.mapping.origins import Origins
from pipelines.ledger.former_versions import intend_change, restore
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Reason, Reject, Repeat, Sighting, SoFar
from pipelines.ledger.states import LANDED, UNDECIDED
from pipelines.loading.load import Load
from pipelines.loading.load_counts import LoadCounts
from pipelines.loading.refusal_reasons import reasons_of
from pipelines.loading.repeats import Repeats, as_repeat
from pipelines.loading.row import AcceptedRow, RowResult, outcome_of
from pipelines.loading.shared_notes import SharedNotes
from pipelines.session.answered_rejects import LoadAnswers

ASLEEP_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that counts while this machine sleeps, as the clock of a ledger's server does."""


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


class Book:
    """The entries and the counts of one load.

    step: how rows reach the target; lowered if the target does not do what it says. stopped: lanes with a row in
    doubt. refused: keys of rows that were set aside. is_ending: returns True if no more rows are to be read; for any
    thread. when_answered: called with each row that the target has answered, once that is written, and with True if it
    refused the row.
    """

    def __init__(self, load: Load) -> None:
        self.load, self.step = load, load.step
        self.loaded = LoadCounts()
        self.stopped: set[str] = set()
        self.refused: set[str] = set()
        self.is_ending: Callable[[], bool] = lambda: bool(self.loaded.unusable)
        self.when_answered: Callable[[AcceptedRow, bool], None] = lambda *_: None
        self.notes = SharedNotes.of(load.batch, load.client, load.ledger)
        self.answers = LoadAnswers.of(load.batch.folder)
        self.repeats = Repeats(load, self.answers)
        self.intents = Intents(load, self.notes)
        self._outcomes = Outcomes(load, self.loaded, self.answers, self.repeats)
        self._held_in: tuple[str, int] | None = None

    # -- rows that are not sent

    def keep(self, row: AcceptedRow, state: str, read_otherwise: bool = False) -> None:
        """Count a row whose record stays as the ledger knows it.

        read_otherwise: True if the record has other content than the row.
        """
        if state == "undone":
            self.loaded.noted["undone"] += 1
            self.loaded.add("skipped", row.amount_cents)
            return
        self._count(row, state)
        self.loaded.noted["read otherwise"] += read_otherwise
        self.loaded.noted["outdated"] += state == "skipped"

    def write_known(
        self, repeats: Sequence[Repeat], aside: Sequence[tuple[AcceptedRow, Reason]], decided: Iterable[int] = ()
    ) -> None:
        """Write judged rows that are not sent, in one commit with the counts of the run.

        decided: lines of rows whose records stay as known and are not in doubt.

        A row set aside whose own record is planned, since its intent was taken back, gets the outcome `refused`.
        """
        planned = self._planned(row for row, _ in aside)
        refused = [(row, refused_for(reason)) for row, reason in aside if row.key in planned]
        aside = [(row, reason) for row, reason in aside if row.key not in planned]
        self.write_down([], refused)
        with self.load.ledger.transaction():
            self.repeats.note(repeats)
            self.repeats.found(decided)
            for row, _ in aside:
                self.loaded.add("rejected", row.amount_cents)
                self.refused.add(row.key)
            if so_far := self.so_far():
                self.load.ledger.count_run(self.load.batch.target, so_far)
            self._outcomes.set_aside([(row, [reason]) for row, reason in aside], "rule")
        self.load.progress.advance(len(aside))

    def _planned(self, rows: Iterable[AcceptedRow]) -> set[str]:
        """Return the keys of rows whose own records are planned."""
        known = self.load.ledger.known(*self.load.of, [row.key for row in rows if row.known and not row.elsewhere])
        return {key for key, record in known.items() if record.state == "planned"}

    # -- around sending

    def moment(self) -> str:
        return self.load.ledger.now()

    def write_down(self, intended: Sequence[AcceptedRow], results: Results, sightings: Sequence[Sighting] = ()) -> None:
        """Write intents of some rows and outcomes of others in one commit.

        Raises `LeaseLost`. It then has written only certain outcomes that the ledger lacks: the loader that took over
        settles all other rows.
        """
        if not intended and not results:
            return
        try:
            with self._counting(), self.load.ledger.writing(self.load.lease):
                if intended:
                    self.intents.write(intended, sightings)
                self._settle(results)
        except LeaseLost:
            with self._counting(), self.load.ledger.transaction():
                self._settle(self._outcomes.still_asked(results))
            raise
        for row, result in results:
            if result.state not in UNDECIDED:
                self.when_answered(row, result.state == "refused")

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Restore the counts if the block raises: nothing was written, and the caller may try again."""
        counted = self.loaded.copy()
        try:
            yield
        except BaseException:
            self.loaded.put_back(counted)
            raise

    def confirm(self) -> None:
        """Raise `LeaseLost` if this load no longer holds the target. For any thread.

        The ledger is asked at most once in a second of both clocks: no loader can take a target so soon after a
        heartbeat.
        """
        second = self.moment()[: len("2026-01-01T00:00:00")], int(time.clock_gettime(ASLEEP_TOO))
        if second != self._held_in:
            self.load.ledger.confirm(self.load.lease)
            self._held_in = second

    def hold_back(self, rows: Iterable[AcceptedRow]) -> None:
        """Take intents back of rows that were not sent in this run. Their records return to their earlier states."""
        self.write_down([], [(row, RowResult(row.left)) for row in rows])

    def _settle(self, results: Results) -> None:
        """Count the results of rows, and write them."""
        if not results:
            return
        results = of_changes(results)
        for row, result in results:
            self._count(row, result.state)
            self.loaded.noted["other"] += result.is_other
        self._outcomes.write(results, self.so_far())
        self.load.progress.advance(len(results))

    def adopted(self, row: AcceptedRow, state: str) -> None:
        """Count a row in doubt as found at the target."""
        self.loaded.count(row.key, state, row.amount_cents)
        self.when_answered(row, False)

    def _count(self, row: AcceptedRow, state: str) -> None:
        self.loaded.count(row.key, state, row.amount_cents)
        if state == "in_doubt":
            self.stopped.add(row.lane)
        elif state == "refused":
            self.refused.add(row.key)

    def so_far(self) -> SoFar | None:
        """Return the counts of the run; None if they are not kept up to date."""
        batch = self.load.batch
        if batch.run is None:
            return None
        return SoFar(batch.batch_id, batch.run, self.loaded.counts_with(batch.validated))


UPDATES = ("first", "again")
"""The changes of rows that update a resource: a new change, and one whose outcome is unknown."""


class Intents:
    """Writer of the intents of one load. notes: for rows that share a note."""

    def __init__(self, load: Load, notes: SharedNotes | None) -> None:
        self._load, self._notes = load, notes

    def write(self, rows: Sequence[AcceptedRow], sightings: Sequence[Sighting] = ()) -> None:
        """Write the intents of rows that are about to be sent. Raises `LeaseLost`."""
        ledger, lease, of = self._load.ledger, self._load.lease, (self._load.source, self._load.resource)
        if self._notes:
            self._notes.keep(lease, rows)
        new = [self.intent(row) for row in rows if not row.known]
        known = [self.intent(row) for row in rows if row.known and row.change not in ("first", "anew")]
        if new or sightings:
            ledger.intend(lease, *of, new, sightings)
        if known:
            ledger.intend_again(lease, *of, known)
        for change, fate in (("first", "standing"), ("anew", "withdrawn")):
            if changes := [(self._known_as(row), self.intent(row)) for row in rows if row.change == change]:
                intend_change(ledger, lease, *of, changes, fate)

    def write_updates(self, updates: Sequence[tuple[AcceptedRow, KnownRecord]]) -> list[AcceptedRow]:
        """Write the intents of updates; return their rows as rows of a change."""
        again = [record.state in UNDECIDED for _, record in updates]
        rows = [
            row._replace(generation=record.generation, known=True, intended=is_begun, change=UPDATES[is_begun])
            for (row, record), is_begun in zip(updates, again, strict=True)
        ]
        self.write(rows)
        return rows

    def _known_as(self, row: AcceptedRow) -> int:
        """Return the generation of a changed record before the change. The update of a task keeps it."""
        is_update = row.change == UPDATES[False] and self._load.resource == "Task"
        return row.generation if is_update else row.generation - 1

    def intent(self, row: AcceptedRow) -> Intent:
        """Return the intent of a row."""
        batch = self._load.batch
        return Intent(
            row.key,
            row.generation,
            batch.batch_id,
            row.line,
            row.content_hash,
            batch.feed.hash,
            row.patient_id,
            row.source_at,
            row.amount_cents,
            None if row.intended else row.first_attempt_at,
        )
