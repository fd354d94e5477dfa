"""The book of a load: what is written before and after rows are sent, in one commit each, and counted.

Which rows are sent is judged by `intake.py`; how they travel is in `under_way.py`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pipelines.ledger.former import intend_change
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Intent, KnownRecord, Reason, Repeat, Sighting, SoFar
from pipelines.ledger.states import UNDECIDED
from pipelines.loading.answered import Result
from pipelines.loading.load import Load
from pipelines.loading.loaded import Loaded
from pipelines.loading.outcomes import Outcomes, Results, of_changes, refused_for
from pipelines.loading.repeats import Repeats
from pipelines.loading.row import Row
from pipelines.loading.shared_notes import SharedNotes
from pipelines.session.answers import Answers

ASLEEP_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that goes on while this machine sleeps. That of a ledger on a server does not."""


class Book:
    """The entries and the counts of one load.

    step: how rows reach the target; lowered where the target does not do what it says. stopped: lanes with a row in
    doubt. refused: keys of rows that were set aside. is_ending: tells whether no more is to be read; from any thread.
    when_answered: called with each row that the target has answered, once that is written, and whether it refused it.
    """

    def __init__(self, load: Load) -> None:
        self.load, self.step = load, load.step
        self.loaded = Loaded()
        self.stopped: set[str] = set()
        self.refused: set[str] = set()
        self.is_ending: Callable[[], bool] = lambda: bool(self.loaded.unusable)
        self.when_answered: Callable[[Row, bool], None] = lambda *_: None
        self.notes = SharedNotes.of(load.batch, load.client, load.ledger)
        self.answers = Answers.of(load.batch.folder)
        self.repeats = Repeats(load, self.answers)
        self.intents = Intents(load, self.notes)
        self._outcomes = Outcomes(load, self.loaded, self.answers, self.repeats)
        self._held_in: tuple[str, int] | None = None

    # -- rows that are not sent

    def keep(self, row: Row, state: str, read_otherwise: bool = False) -> None:
        """Count a row that stays as it is known.

        read_otherwise: whether its record has other content.
        """
        if state == "undone":
            self.loaded.undone += 1
            self.loaded.add("skipped", row.amount_cents)
            return
        self.loaded.count(row.key, state, row.amount_cents)
        if state == "in_doubt":
            self.stopped.add(row.lane)
        self.loaded.read_otherwise += read_otherwise

    def keep_made(self, row: Row, state: str) -> None:
        """Count a row as what an earlier worker of this load has made of it."""
        self.loaded.add(state, row.amount_cents)

    def write_known(
        self, repeats: Sequence[Repeat], aside: Sequence[tuple[Row, Reason]], decided: Iterable[int] = ()
    ) -> None:
        """Write rows down that were judged and are not sent, in one commit with the counts of the run.

        decided: lines of rows that stay as they are known, which is not in doubt.

        One whose intent was taken back before has a record, which gets the outcome that it is refused.
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

    def _planned(self, rows: Iterable[Row]) -> set[str]:
        """Return the keys of those rows whose own records are to be sent."""
        known = self.load.ledger.known(*self.load.of, [row.key for row in rows if row.known and not row.elsewhere])
        return {key for key, record in known.items() if record.state == "planned"}

    # -- around sending

    def moment(self) -> str:
        return self.load.ledger.now()

    def write_down(self, intended: Sequence[Row], results: Results, sightings: Sequence[Sighting] = ()) -> None:
        """Commit intents of some rows and outcomes of others together.

        Raises `LeaseLost`. Then only facts are written that the ledger does not have: the loader that took over settles
        the rest.
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
        """Take counts back if the block raises: nothing was written, and the caller may try again."""
        counted = self.loaded.copy()
        try:
            yield
        except BaseException:
            self.loaded.put_back(counted)
            raise

    def confirm(self) -> None:
        """Ask the ledger whether this load has the target still. From any thread. Raises `LeaseLost`.

        Once in a second, which is of two clocks: nobody is given a target that soon after it was seen held.
        """
        second = self.moment()[: len("2026-01-01T00:00:00")], int(time.clock_gettime(ASLEEP_TOO))
        if second != self._held_in:
            self.load.ledger.confirm(self.load.lease)
            self._held_in = second

    def hold_back(self, rows: Iterable[Row]) -> None:
        """Take intents back: these rows were not sent in this run, and keep what was known of them before."""
        self.write_down([], [(row, Result(row.left)) for row in rows])

    def _settle(self, results: Results) -> None:
        """Count results of rows, and write them."""
        if not results:
            return
        results = of_changes(results)
        for row, result in results:
            self._count(row, result.state)
            self.loaded.is_other += result.is_other
        self._outcomes.write(results, self.so_far())
        self.load.progress.advance(len(results))

    def adopted(self, row: Row, state: str) -> None:
        """Count a row in doubt as found at the target."""
        self.loaded.count(row.key, state, row.amount_cents)
        self.when_answered(row, False)

    def _count(self, row: Row, state: str) -> None:
        self.loaded.count(row.key, state, row.amount_cents)
        if state == "in_doubt":
            self.stopped.add(row.lane)
        elif state == "refused":
            self.refused.add(row.key)

    def so_far(self) -> SoFar | None:
        """Return the counts of the run; None where they are not to be kept up to date."""
        batch = self.load.batch
        if batch.run is None:
            return None
        return SoFar(batch.batch_id, batch.run, self.loaded.counts_with(batch.validated))


UPDATES = ("first", "again")
"""The changes of rows that update a resource: one that is new, and one whose outcome is not known."""


class Intents:
    """Writes the intents of one load. notes: of rows that share a note with others."""

    def __init__(self, load: Load, notes: SharedNotes | None) -> None:
        self._load, self._notes = load, notes

    def write(self, rows: Sequence[Row], sightings: Sequence[Sighting] = ()) -> None:
        """Commit that these rows are being sent. Raises `LeaseLost`."""
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

    def write_updates(self, updates: Sequence[tuple[Row, KnownRecord]]) -> list[Row]:
        """Commit that resources are about to be updated; return their rows as rows of a change."""
        again = [record.state in UNDECIDED for _, record in updates]
        rows = [
            row._replace(generation=record.generation, known=True, intended=is_begun, change=UPDATES[is_begun])
            for (row, record), is_begun in zip(updates, again, strict=True)
        ]
        self.write(rows)
        return rows

    def _known_as(self, row: Row) -> int:
        """The generation that the record of a change has: an update, which is of a task, keeps it."""
        is_update = row.change == UPDATES[False] and self._load.resource == "Task"
        return row.generation if is_update else row.generation - 1

    def intent(self, row: Row) -> Intent:
        """Return a row as it is written before it is sent."""
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
