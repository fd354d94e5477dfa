"""Write which rows are about to be sent, before they are: new ones, known ones once more, and changes."""

from collections.abc import Sequence

from pipelines.ledger.former import intend_change
from pipelines.ledger.rows import Intent, KnownRecord, Sighting
from pipelines.ledger.states import UNDECIDED
from pipelines.loading.load import Load
from pipelines.loading.row import Row
from pipelines.loading.shared_notes import SharedNotes

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
