"""The ledger's side of a load: what each row is to the ledger, its intent, its result, and the counts.

How rows travel is not here: senders take rows from the book and bring their results back.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from pipelines.client.client import FhirClient
from pipelines.feeds.mapping.origins import Origins
from pipelines.home.progress import Progress
from pipelines.home.spill import batches
from pipelines.ledger.former import intend_change, restore
from pipelines.ledger.lease import Lease
from pipelines.ledger.ledger import LeaseLost, Ledger, utc_text
from pipelines.ledger.rejects import resubmit
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Reason, Reject, Repeat, Sighting, SoFar
from pipelines.ledger.standing import undone_at
from pipelines.ledger.states import LANDED, UNDECIDED
from pipelines.ledger.tables import LedgerError
from pipelines.loading.accepted import ROWS_A_LOOK, accepted_files, accepted_rows, plain_columns
from pipelines.loading.ended import Ended
from pipelines.loading.held import Held
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.lookup import ahead, ids_before
from pipelines.loading.policies import update_tasks
from pipelines.loading.sending import Result, Row
from pipelines.loading.settling import Settled, settle_doubts
from pipelines.loading.shared_notes import SharedNotes
from pipelines.loading.verdicts import ASIDE, SENT, Verdicts
from pipelines.loading.why import reasons_of
from pipelines.session.answers import Answers

KEYS_A_CLOSING = 20_000
SKIPPED = "line key patient_id source_at amount_cents".split()


class Book:
    """The ledger's side of one load: what each row is to the ledger, its intent, its result, and the counts."""

    def __init__(
        self, batch: Batch, client: FhirClient, ledger: Ledger, lease: Lease, progress: Progress, safe: bool
    ) -> None:
        self.batch, self.client, self.ledger = batch, client, ledger
        self.lease, self.progress, self.safe = lease, progress, safe
        self.answers = Answers.of(batch.folder)
        self.verdicts = Verdicts(batch, ledger, safe, self.answers)
        self.source, self.resource = batch.feed.source, batch.feed.resource
        self.origins = Origins(batch.feed.file, batch.feed.kind)
        self.loaded = Loaded()
        self.stopped: set[str] = set()
        self.noted: set[str] = set()
        self._held_in: str | None = None
        self.superseded: list[str] = []
        self._second_look: set[str] | None = None
        self._refused: set[str] = set()
        self.ended = Ended(ledger, (batch.target, self.source, self.resource), batch.batch_id, self.answers)
        self._held: Held | None = None
        self._landed: list[str] = []
        self._there: dict[str, str] = {}
        self._undone_at: dict[str, str] = {}
        self.notes: SharedNotes | None = None

    # -- before sending

    def rows_to_send(self) -> Iterator[Row]:
        """The accepted rows that are to be sent, in order; what the ledger knows of the others is noted on the way."""
        for rows in accepted_rows(self.batch.folder / "accepted.parquet", self.ledger.now()):
            yield from self._to_send(rows)

    def _to_send(self, rows: list[Row]) -> list[Row]:
        known = self.ledger.known(self.batch.target, self.source, self.resource, [row.key for row in rows])
        rows = self._not_held(rows, known)
        if self._second_look is not None:
            return self._held_up(rows, known, self._second_look)
        ended = self.ended.reasons(rows, known)
        if not known and not ended:
            return rows
        sending: list[Row] = []
        repeats: list[Repeat] = []
        aside = [(row, ended[row.key]) for row in rows if row.key in ended]
        updates: list[tuple[Row, KnownRecord]] = []
        for row in (row for row in rows if row.key not in ended):
            record = known.get(row.key)
            verdict = self.verdicts.of(row, record)
            if verdict in SENT:
                sending.append(self.verdicts.as_sent(verdict, row, record))
            elif record is None:
                raise LedgerError(f"a row without a record cannot be '{verdict}'")
            elif verdict == "update":
                updates.append((row, record))
            elif verdict in ASIDE:
                aside.append((row, self._why_aside(verdict, record)))
            else:
                self._keep(row, verdict)
                self.loaded.read_otherwise += verdict == "unchanged" and self.verdicts.is_read_otherwise(row, record)
                if verdict not in UNDECIDED and not self.verdicts.own(row, record):
                    repeats.append(_repeat(row, verdict, record.resource_id))
        with self.ledger.transaction():
            self.note(repeats)
            self._set_aside(aside)
            if so_far := self._so_far():
                self.ledger.count_run(self.batch.target, so_far)
        self.progress.advance(len(rows) - len(sending) - len(updates) - len(aside))
        update_tasks(self, updates)
        return sending

    def _not_held(self, rows: list[Row], known: dict[str, KnownRecord]) -> list[Row]:
        """The rows that wait for no other batch. The others are not judged: they stay without an outcome."""
        if self._held is None:
            self._held = Held(self.batch, self.ledger, self.safe)
        if not self._held:
            return rows
        free = list[Row]()
        for row in rows:
            if holder := self._held.holder(row, known.get(row.key)):
                self.loaded.waits_for.add(holder)
            else:
                free.append(row)
        return free

    def _held_up(self, rows: list[Row], known: dict[str, KnownRecord], lanes: Collection[str]) -> list[Row]:
        """A second look at a file: the rows that a doubt, settled by now, held up. All others have been counted."""
        left: list[Row] = []
        for row in rows:
            record = known.get(row.key)
            if row.lane in lanes and row.key not in self._refused:
                verdict = self.verdicts.of(row, record)
                if verdict in SENT:
                    left.append(self.verdicts.as_sent(verdict, row, record))
        return left

    def _keep(self, row: Row, state: str) -> None:
        """A row that is not sent. One whose record was taken back answers nothing."""
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

    def _taken_back(self, record: KnownRecord) -> Reason:
        batch_id = record.batch_id
        if batch_id not in self._undone_at:
            self._undone_at |= {batch_id: ""} | undone_at(self.ledger, self.batch.target, [batch_id])
        at = self._undone_at[batch_id]
        how = f"by undo of {batch_id} at {at[:19]}Z" if at else f"at the target, with what {batch_id} had made"
        said = f"the record was taken back {how}; chartferry rejects retry --taken-back loads it once more"
        return Reason("TAKEN-BACK", None, None, said, True)

    def _why_aside(self, verdict: str, record: KnownRecord) -> Reason:
        return self._taken_back(record) if verdict == "taken back" else self._changed(record)

    def _changed(self, record: KnownRecord) -> Reason:
        key, known = self.origins.key, f"line {record.line} of {record.batch_id}"
        column = self.origins.labels.get(key.name)
        return Reason("LEDGER-08", key.element, column, f"the key is known with other content, from {known}", False)

    def _set_aside(self, rows: Sequence[tuple[Row, Reason]]) -> None:
        for row, _ in rows:
            self.loaded.add("rejected", row.amount_cents)
            self._refused.add(row.key)
        self._reject([self._rejected(row, "rule", [reason]) for row, reason in rows])
        self.progress.advance(len(rows))

    def note_answers(self) -> None:
        """Write down that records of this load are on their way to answer rejects."""
        if answers := self.answers.to_come():
            of = (self.batch.target, self.source, self.resource, self.batch.batch_id)
            resubmit(self.ledger, *of, answers)

    def note_skipped(self) -> None:
        """Equal repeats within the file, which count once; and doubtful records of which the target has just that."""
        for name, state in (("skipped", "skipped"), ("known", "unchanged")):
            path = self.batch.folder / f"{name}.parquet"
            for part in batches(path, ROWS_A_LOOK, SKIPPED) if path.exists() else ():
                rows = list(zip(*plain_columns(part, SKIPPED), strict=True))
                self.note([Repeat(line, key, state, None, *rest) for line, key, *rest in rows])
                for *_, cents in rows:
                    self.loaded.add(state, cents)

    # -- around sending

    def moment(self) -> str:
        return self.ledger.now()

    def look(self, row: Row) -> Sighting:
        """What the row's patient has at the target now. From any thread."""
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
        """`intend`, and what came of other rows, in one commit. Raises `LeaseLost`, and then writes facts only.

        What is open is for who took over to settle, and may be settled by now; and a fact of a record that is so, or
        has been changed since, is an old one.
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

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """What is counted within counts once it is written: who could not write it may try again."""
        counted, landed, superseded = self.loaded.copy(), self._landed, self.superseded
        so_many = len(landed), len(superseded)
        try:
            yield
        except BaseException:
            self.loaded.put_back(counted)
            self._landed, self.superseded = landed[: so_many[0]], superseded[: so_many[1]]
            raise

    def _still_asked(self, results: Sequence[tuple[Row, Result]]) -> list[tuple[Row, Result]]:
        """Facts of rows whose intents are the last that is known of their records."""
        known = self.ledger.known(self.batch.target, self.source, self.resource, [row.key for row, _ in results])
        return [(row, result) for row, result in results if _tells(row, result, known[row.key])]

    def intend_updates(self, updates: Sequence[tuple[Row, KnownRecord]]) -> list[Row]:
        """The same for rows whose resource is to be changed; gives them as rows of a change."""
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
        """What came of rows; the refused ones are set aside, and all counted."""
        if not results:
            return
        results = [(row, _of_a_change(r)) if row.replaces else (row, r) for row, r in results]
        self._count(results)
        back = {row.key for row, r in results if row.replaces and r.state == "refused"}
        of = (self.batch.target, self.source, self.resource)
        outcomes = [
            Outcome(row.key, row.generation, r.state, r.resource_id, r.status)
            for row, r in results
            if row.key not in back
        ]
        self.ledger.settle(*of, outcomes, self._so_far())
        if back:
            restore(self.ledger, *of, back)
            self.note([_repeat(row, "refused", None) for row, _ in results if row.key in back])
        self._set_aside_refused(results)
        known_now = [(row, r) for row, r in results if row.elsewhere and r.state not in UNDECIDED and not row.change]
        self.note([_repeat(row, _elsewhere(r.state), r.resource_id) for row, r in known_now])
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
                self._refused.add(row.key)
            elif result.state in LANDED:
                self._has_landed(row, result.state)

    def _so_far(self) -> SoFar | None:
        if self.batch.run is None:
            return None
        return SoFar(self.batch.batch_id, self.batch.run, self.loaded.counts_with(self.batch.validated))

    def _has_landed(self, row: Row, state: str) -> None:
        self._landed.append(row.key)
        if self.answers:
            self.answers.landed(row.line)
        if state == "superseded":
            self.superseded.append(row.key)

    # -- rows in doubt

    def settle_doubts_before(self) -> None:
        """Look up what earlier runs left in doubt, as `settle_doubts` does, with the rows as those runs read them.

        At a target that can be asked by key only those that are read otherwise by now, or that were sent without their
        key when it could not: the others are sent again.
        """
        if not self.safe:
            self.settle_doubts(accepted_files(self.batch.folder.parent))
        elif self.batch.resuming:
            files = accepted_files(self.batch.folder.parent)
            self.settle_doubts(files, self.batch.folder / "accepted.parquet")

    def settle_doubts(self, files: Sequence[Path] = (), apart_from: Path | None = None) -> Settled:
        """Look this batch's rows in doubt up and adopt those found; what surely is not there may be sent again."""
        settled = settle_doubts(
            self.ledger,
            self.client,
            self.batch.target,
            (self.source, self.resource, self.batch.batch_id),
            files or [self.batch.folder / "accepted.parquet"],
            safe=self.safe,
            settling_seconds=self.batch.pace.settling_seconds,
            apart_from=apart_from,
        )
        self.verdicts.resend = {row.key for row in settled.resend}
        return settled

    def settle_doubts_again(self) -> bool:
        """The same after rows were sent; whether lanes that had stopped can go on: they are then looked at again."""
        settled = self.settle_doubts()
        for row, state, _ in settled.adopted:
            self.loaded.move("in_doubt", state, row.amount_cents)
            self._has_landed(row, state)
        self._second_look = {found.row.lane for found in settled.adopted} - {row.lane for row, _ in settled.left}
        self.stopped -= self._second_look
        return bool(self._second_look)

    def _close_in_parts(self) -> None:
        if len(self._landed) + len(self._there) >= KEYS_A_CLOSING:
            self.close_answered()

    def close_answered(self, ids: Collection[str] = ()) -> None:
        """Close the rejects that rows of this load have answered: by key, and those of these ids."""
        if self._landed or self._there or ids:
            of = (self.batch.target, self.source, self.resource)
            batch_id, there = self.batch.batch_id, self._there
            self.ledger.close_rejects(*of, self._landed, batch_id=batch_id, ids=ids, there=there)
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


def _repeat(row: Row, state: str, resource_id: str | None) -> Repeat:
    return Repeat(row.line, row.key, state, resource_id, row.patient_id, row.source_at, row.amount_cents)


def _tells(row: Row, result: Result, record: KnownRecord) -> bool:
    """True if a result is a fact, and news. That a change was refused is for who changes the record now."""
    same = (record.generation, record.content_hash) == (row.generation, row.content_hash)
    fact = result.state not in UNDECIDED and not (row.replaces and result.state == "refused")
    return same and fact and record.state in UNDECIDED


def _of_a_change(result: Result) -> Result:
    """What is made in the place of an earlier version supersedes it."""
    return result._replace(state="superseded") if result.state in ("created", "adopted") else result


def _elsewhere(state: str) -> str:
    """What a row is whose record stands in another batch, once that record has this state."""
    return "unchanged" if state in (*LANDED, "undone") else state
