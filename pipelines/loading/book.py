"""Write what a load does: intents before rows are sent, outcomes after, rejects, and the counts.

Which rows are sent is judged by `intake.py`; how they travel is in `bundles.py` and `lanes.py`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.steps import Step
from pipelines.feeds.mapping.origins import Origins
from pipelines.home.progress import Progress
from pipelines.ledger.former import intend_change, restore
from pipelines.ledger.lease import Held
from pipelines.ledger.ledger import LeaseLost, Ledger, utc_text
from pipelines.ledger.rejects import resubmit
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Reason, Reject, Repeat, Sighting, SoFar
from pipelines.ledger.states import LANDED, UNDECIDED
from pipelines.loading.answered import Result
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.lookup import ahead, ids_before
from pipelines.loading.ownership import owner_of
from pipelines.loading.row import Row
from pipelines.loading.shared_notes import SharedNotes
from pipelines.loading.why import reasons_of
from pipelines.session.answers import Answers

KEYS_A_CLOSING = 20_000


class Book:
    """The ledger entries and the counts of one load.

    step: how rows reach the target; lowered where the target does not do what it says. owner: tells what
    is the source's there. stopped: lanes with a row in
    doubt. noted: patients whose resources at the target are noted. refused: keys of rows that were set aside. landed,
    there: keys, and contents by key, whose rejects are not closed yet. when_answered: called with each row that
    the target has answered, once that is written, and whether it refused it.
    """

    def __init__(
        self,
        batch: Batch,
        client: FhirClient,
        ledger: Ledger,
        lease: Held,
        progress: Progress,
        step: Step,
        capabilities: Capabilities,
    ) -> None:
        self.batch, self.client, self.ledger = batch, client, ledger
        self.lease, self.progress, self.step = lease, progress, step
        self.owner = owner_of(batch, capabilities)
        self.source, self.resource = batch.feed.source, batch.feed.resource
        self.of = (batch.target, self.source, self.resource)
        self.answers = Answers.of(batch.folder)
        self.origins = Origins(batch.feed.file, batch.feed.kind)
        self.notes = SharedNotes.of(batch, client, ledger)
        self.loaded = Loaded()
        self.stopped: set[str] = set()
        self.noted: set[str] = set()
        self.refused: set[str] = set()
        self.when_answered: Callable[[Row, bool], None] = lambda *_: None
        self._landed: list[str] = []
        self._there: dict[str, str] = {}
        self._held_in: str | None = None

    # -- rows that are not sent

    def keep(self, row: Row, state: str) -> None:
        """Count a row that stays as it is known. One whose record was taken back answers nothing."""
        if state == "undone":
            self.loaded.undone += 1
            self.loaded.add("skipped", row.amount_cents)
            return
        self.loaded.add(state, row.amount_cents)
        if state == "in_doubt":
            self.stopped.add(row.lane)
        if state in LANDED:
            self.answers.landed(row.line)
        if state == "unchanged" and self.batch.resuming:
            self._there[row.key] = row.content_hash
            self._close_in_parts()

    def keep_made(self, row: Row, state: str) -> None:
        """Count a row as what an earlier worker of this load has made of it."""
        self.loaded.add(state, row.amount_cents)
        self.has_landed(row)

    def write_known(self, repeats: Sequence[Repeat], aside: Sequence[tuple[Row, Reason]]) -> None:
        """Write rows down that were judged and are not sent, in one commit with the counts of the run."""
        with self.ledger.transaction():
            self.note(repeats)
            for row, _ in aside:
                self.loaded.add("rejected", row.amount_cents)
                self.refused.add(row.key)
            self._reject([self._rejected(row, "rule", [reason]) for row, reason in aside])
            if so_far := self._so_far():
                self.ledger.count_run(self.batch.target, so_far)
        self.progress.advance(len(aside))

    def note_answers(self) -> None:
        """Write down that records of this load are on their way to answer rejects."""
        if answers := self.answers.to_come():
            resubmit(self.ledger, *self.of, self.batch.batch_id, answers)

    # -- around sending

    def moment(self) -> str:
        return self.ledger.now()

    def look(self, row: Row) -> Sighting:
        """Return the resources that the row's patient has at the target now. Safe from any thread."""
        ids = ids_before(self.client, self.resource, row)
        now = datetime.now(UTC)
        return Sighting(row.patient_id or "", utc_text(now), ahead(self.client, now), ids)

    def intend(self, rows: Sequence[Row], sightings: Sequence[Sighting] = ()) -> None:
        """Commit that these rows are being sent. Raises `LeaseLost`."""
        if self.notes:
            self.notes.keep(self.lease, rows)
        new = [self._intent(row) for row in rows if not row.known]
        known = [self._intent(row) for row in rows if row.known and row.change not in ("first", "anew")]
        changes = [(row.generation - 1, self._intent(row)) for row in rows if row.change == "first"]
        anew = [(row.generation - 1, self._intent(row)) for row in rows if row.change == "anew"]
        if new or sightings:
            self.ledger.intend(self.lease, self.source, self.resource, new, sightings)
        if known:
            self.ledger.intend_again(self.lease, self.source, self.resource, known)
        if changes:
            intend_change(self.ledger, self.lease, self.source, self.resource, changes)
        if anew:
            intend_change(self.ledger, self.lease, self.source, self.resource, anew, "withdrawn")

    def write_down(
        self, intended: Sequence[Row], results: Sequence[tuple[Row, Result]], sightings: Sequence[Sighting] = ()
    ) -> None:
        """Commit intents of some rows and outcomes of others together.

        Raises `LeaseLost`. Then only facts are written that the ledger does not have: the loader that took over settles
        the rest.
        """
        if not intended and not results:
            return
        try:
            with self._counting(), self.ledger.writing(self.lease):
                if intended:
                    self.intend(intended, sightings)
                self._settle(results)
        except LeaseLost:
            with self._counting(), self.ledger.transaction():
                self._settle(self._still_asked(results))
            raise
        for row, result in results:
            if result.state not in UNDECIDED:
                self.when_answered(row, result.state == "refused")

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Take counts back if the block raises: nothing was written, and the caller may try again."""
        counted, landed, so_many = self.loaded.copy(), self._landed, len(self._landed)
        try:
            yield
        except BaseException:
            self.loaded.put_back(counted)
            self._landed = landed[:so_many]
            raise

    def _still_asked(self, results: Sequence[tuple[Row, Result]]) -> list[tuple[Row, Result]]:
        """Return the results that are facts, of rows whose intents are the last of their records."""
        known = self.ledger.known(*self.of, [row.key for row, _ in results])
        return [(row, result) for row, result in results if _tells(row, result, known[row.key])]

    def intend_updates(self, updates: Sequence[tuple[Row, KnownRecord]]) -> list[Row]:
        """Commit that resources are about to be updated; return their rows as rows of a change."""
        rows = [
            row._replace(
                generation=record.generation,
                known=True,
                intended=record.state in UNDECIDED,
                change="again" if record.state in UNDECIDED else "first",
            )
            for row, record in updates
        ]
        changes = [(row.generation, self._intent(row)) for row in rows if row.change == "first"]
        if changes:
            intend_change(self.ledger, self.lease, self.source, self.resource, changes)
        if known := [self._intent(row) for row in rows if row.change == "again"]:
            self.ledger.intend_again(self.lease, self.source, self.resource, known)
        return rows

    def confirm(self) -> None:
        """Ask the ledger whether this load has the target still. From any thread. Raises `LeaseLost`.

        Once in a second of the ledger's clock: nobody is given a target that soon after it was seen held.
        """
        second = self.ledger.now()[: len("2026-01-01T00:00:00")]
        if second != self._held_in:
            self.ledger.confirm(self.lease)
            self._held_in = second

    def hold_back(self, rows: Iterable[Row]) -> None:
        """Take intents back: these rows were not sent in this run, and keep what was known of them before."""
        self.write_down([], [(row, Result("in_doubt" if row.intended else "planned")) for row in rows])

    def _settle(self, results: Sequence[tuple[Row, Result]]) -> None:
        """Write the results of rows, set refused rows aside, and count all."""
        if not results:
            return
        results = [(row, _of_a_change(r)) if row.replaces else (row, r) for row, r in results]
        self._count(results)
        back = {row.key for row, r in results if row.replaces and r.state == "refused"}
        outcomes = [
            Outcome(row.key, row.generation, r.state, r.resource_id, r.status)
            for row, r in results
            if row.key not in back
        ]
        self.ledger.settle(*self.of, outcomes, self._so_far())
        if back:
            restore(self.ledger, *self.of, back)
            self.note([as_repeat(row, "refused", None) for row, _ in results if row.key in back])
        self._set_aside_refused(results)
        known_now = [(row, r) for row, r in results if row.elsewhere and r.state not in UNDECIDED and not row.change]
        self.note([as_repeat(row, _elsewhere(r.state), r.resource_id) for row, r in known_now])
        self.progress.advance(len(results))
        self._close_in_parts()

    def _set_aside_refused(self, results: Sequence[tuple[Row, Result]]) -> None:
        refused = [(row, reasons_of(r, row.body, self.origins)) for row, r in results if r.state == "refused"]
        self._reject([self._rejected(row, "load", reasons) for row, reasons in refused])

    def _count(self, results: Sequence[tuple[Row, Result]]) -> None:
        for row, result in results:
            self.loaded.add(result.state, row.amount_cents)
            if result.state == "in_doubt":
                self.stopped.add(row.lane)
            elif result.state == "refused":
                self.refused.add(row.key)
            elif result.state in LANDED:
                self.has_landed(row)

    def _so_far(self) -> SoFar | None:
        if self.batch.run is None:
            return None
        return SoFar(self.batch.batch_id, self.batch.run, self.loaded.counts_with(self.batch.validated))

    def has_landed(self, row: Row) -> None:
        """Note that a row's record is at the target: the rejects that it answers are closed next."""
        self._landed.append(row.key)
        if self.answers:
            self.answers.landed(row.line)

    # -- rejects and repeats

    def _close_in_parts(self) -> None:
        if len(self._landed) + len(self._there) >= KEYS_A_CLOSING:
            self.close_answered()

    def close_answered(self, ids: Collection[str] = ()) -> None:
        """Close the rejects that rows of this load have answered: by key, and those of these ids."""
        if self._landed or self._there or ids:
            batch_id, there = self.batch.batch_id, self._there
            self.ledger.close_rejects(*self.of, self._landed, batch_id=batch_id, ids=ids, there=there)
            self._landed, self._there = [], {}

    def _intent(self, row: Row) -> Intent:
        return Intent(
            row.key,
            row.generation,
            self.batch.batch_id,
            row.line,
            row.content_hash,
            self.batch.feed.hash,
            row.patient_id,
            row.source_at,
            row.amount_cents,
            None if row.intended else row.first_attempt_at,
        )

    def _rejected(self, row: Row, stage: str, reasons: Sequence[Reason]) -> Reject:
        self.answers.still_wrong(row.line)
        about = (row.patient_id, row.source_at, row.amount_cents)
        answers = self.answers.of_line(row.line)
        return Reject(row.line, row.lines, row.key, stage, *about, reasons, answers, row.content_hash)

    def note(self, repeats: Sequence[Repeat], at: str | None = None) -> None:
        """Note rows whose records are known from elsewhere, as of now or of another moment.

        A line on which the batch has a record of another key, by a feed that was changed since, keeps that alone.
        """
        if not repeats:
            return
        target, batch_id = self.batch.target, self.batch.batch_id
        if self._is_read_otherwise:
            keys = self.ledger.keys_on(target, batch_id, [each.line for each in repeats])
            repeats = [each for each in repeats if keys.get(each.line, each.key) == each.key]
        self.ledger.note_repeats(target, self.source, self.resource, batch_id, repeats, at)

    @cached_property
    def _is_read_otherwise(self) -> bool:
        return self.ledger.is_read_otherwise(self.batch.target, self.batch.batch_id, self.batch.feed.hash)

    def _reject(self, rejects: list[Reject]) -> None:
        if rejects:
            for reject in rejects:
                self.loaded.reasons.update({reason.rule_id for reason in reject.reasons})
            self.ledger.reject(self.batch.target, self.source, self.resource, self.batch.batch_id, rejects)


def as_repeat(row: Row, state: str, resource_id: str | None) -> Repeat:
    """Return a row as it is written where its record is from another line."""
    return Repeat(row.line, row.key, state, resource_id, row.patient_id, row.source_at, row.amount_cents)


def _tells(row: Row, result: Result, record: KnownRecord) -> bool:
    """True if a result is a fact, and news. That a change was refused is for who changes the record now."""
    same = (record.generation, record.content_hash) == (row.generation, row.content_hash)
    fact = result.state not in UNDECIDED and not (row.replaces and result.state == "refused")
    return same and fact and record.state in UNDECIDED


def _of_a_change(result: Result) -> Result:
    """Return a result as `superseded` where the row replaced an earlier version."""
    return result._replace(state="superseded") if result.state in ("created", "adopted") else result


def _elsewhere(state: str) -> str:
    """Return the state to report for a row whose record belongs to another batch, given that record's state."""
    return "unchanged" if state in (*LANDED, "undone") else state
