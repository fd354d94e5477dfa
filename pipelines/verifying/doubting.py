"""Adopt the rows of a lost batch, or put them in doubt."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import duckdb
import orjson

from pipelines.client.comparison import fingerprints, taken_back
from pipelines.ledger.former_versions import intend_change
from pipelines.ledger.rows import KnownRecord, Outcome, Repeat, Sighting
from pipelines.ledger.standing import Standing, standing_of
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.book import Book
from pipelines.loading.lookup import ahead
from pipelines.loading.repeats import as_repeat
from pipelines.loading.row import AcceptedRow, Identity
from pipelines.verifying.target import WITHOUT

NEWEST = """
CREATE OR REPLACE TABLE newest AS
SELECT *, coalesce(spelling, record_key) AS today FROM there WHERE system = $1
QUALIFY row_number() OVER (PARTITION BY record_key ORDER BY record_generation DESC) = 1"""
"""Selects, by key, the resource with the newest generation in its identifier."""
CARRIES = """
SELECT today, id, record_generation, content, status FROM newest WHERE today IN (SELECT unnest($1))
QUALIFY row_number() OVER (PARTITION BY today ORDER BY spelling IS NOT NULL) = 1"""
"""Selects, by key, the resource whose identifier is spelled as today, else one in another spelling."""
STANDS = f"SELECT id FROM there WHERE id IN (SELECT unnest($1)) AND NOT {WITHOUT}"


class FoundResource(NamedTuple):
    """A resource with the identifier of a row. content: its fingerprint."""

    resource_id: str
    generation: int
    content: str | None
    status: str | None


class CarriedIdentifiers:
    """The target's resources with the identifiers of some rows, from table `there`.

    Of several resources with one key, the one of the newest generation counts.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, source: str, resource_type: str) -> None:
        self._db, self._resource_type = db, resource_type
        self._by_key: dict[str, FoundResource] = {}
        self._stands: set[str] = set()
        db.execute(NEWEST, [Identity(source, resource_type).system])

    def look_up(self, rows: Sequence[AcceptedRow], known: Sequence[KnownRecord]) -> None:
        """Look up the resources with the rows' keys, and which resources of known records are still in force."""
        carried = self._db.execute(CARRIES, [[row.key for row in rows]]).fetchall()
        self._by_key = {key: FoundResource(*rest) for key, *rest in carried}
        made = [record.resource_id for record in known if record.resource_id]
        self._stands = {name for (name,) in self._db.execute(STANDS, [made]).fetchall()}

    def stands(self, resource_id: str | None) -> bool:
        """True if the target has the resource and it was not taken back. Only for resources of the known records."""
        return resource_id in self._stands

    def of(self, row: AcceptedRow, record: KnownRecord | None) -> FoundResource | None:
        """Return the resource with the row's key and content; None if there is none."""
        there = self._by_key.get(row.key)
        if there is None or there.content != fingerprints(self._resource_type, orjson.loads(row.body))[0]:
            return None
        return there if record is None or there.generation >= record.generation else None

    def is_of_another(self, row: AcceptedRow) -> bool:
        """True if a resource has the row's key and other content."""
        return row.key in self._by_key and self.of(row, None) is None

    def is_taken_back(self, row: AcceptedRow, there: FoundResource) -> bool:
        """True if a resource was taken back, and the row itself does not say so."""
        return taken_back(self._resource_type, orjson.loads(row.body), {"status": there.status})


class LostBatchWriter:
    """Writer of the rows of one lost batch.

    since: when the first of its lost runs began, as UTC text. by: how far the target's clock was ahead then; if that
    was not noted, the present difference is used. later: this batch and those that came after it.
    """

    def __init__(
        self, db: duckdb.DuckDBPyConnection, book: Book, since: str, by: timedelta | None, later: set[str]
    ) -> None:
        load = book.load
        self._load, self._book, self._since, self._later = load, book, since, later
        self._carried = CarriedIdentifiers(db, load.source, load.resource)
        self._of = load.of
        self._ahead = ahead(load.client, load.ledger.clock()) if by is None else by // timedelta(microseconds=1)
        changed = load.batch.feed.file.changed
        self._supersedes = changed == "supersede" and load.resource == "QuestionnaireResponse"
        self._first_stays = self._book.step.named and changed in ("reject", "skip")
        self._import_decides = self._first_stays or (self._book.step.named and changed == "update")

    def write_all(self) -> None:
        """Write the accepted rows of the batch's run, and the repeats within its file; count them in the book."""
        self._book.repeats.note_skipped(self._book.loaded)
        progress = self._load.progress
        progress.stage("adopt", self._load.batch.batch_id)
        for rows in accepted_rows(self._load.batch.folder / "accepted.parquet", self._since):
            self.write(rows)
            progress.advance(len(rows))
        progress.end()

    def write(self, rows: Sequence[AcceptedRow]) -> None:
        """Adopt some rows, put others in doubt, and note those that the ledger knows."""
        ledger = self._load.ledger
        known = ledger.known(*self._of, [row.key for row in rows])
        self._carried.look_up(rows, list(known.values()))
        with ledger.writing(self._load.lease):
            self._note_known([(row, known[row.key]) for row in rows if self._is_known(row, known.get(row.key))])
            for row in rows:
                record = known.get(row.key)
                if not self._is_known(row, record) and not self._is_of_another(row, record):
                    self._settle(row, record, self._carried.of(row, record))

    def _is_known(self, row: AcceptedRow, record: KnownRecord | None) -> bool:
        """True if the ledger has the outcome of a row, or of a later row of its record."""
        if record is None or standing_of(record) in (Standing.ABSENT, Standing.WAITING):
            return False
        found = self._carried.of(row, record)
        if (found and found.generation > record.generation) or self._is_gone(record):
            return False
        may_have_changed = self._supersedes or found is not None
        return record.holds(row.content_hash) or record.batch_id in self._later or not may_have_changed

    def _is_of_another(self, row: AcceptedRow, record: KnownRecord | None) -> bool:
        """True if the target has other content under the row's key, and a row of other content makes no other resource.
        The content may be an earlier file's or of unknown origin. The next import updates it, or sets the row aside.
        """
        return self._import_decides and record is None and self._carried.is_of_another(row)

    def _is_gone(self, record: KnownRecord) -> bool:
        """True if the target no longer has the resource of a record, which a lost run may have made anew."""
        return standing_of(record) is Standing.THERE and not self._carried.stands(record.resource_id)

    def _settle(self, row: AcceptedRow, record: KnownRecord | None, there: FoundResource | None) -> None:
        """Write a row with the resource that has its key, or as a row in doubt."""
        book, ledger, lease = self._book, self._load.ledger, self._load.lease
        generation = there.generation if there else _next_generation(record)
        row = row._replace(generation=generation)
        if there is None and not book.step.named:
            # For a row that was sent without its key, only the time is known.
            ledger.intend(lease, *self._of[1:], [], [Sighting(row.patient_id or "", self._since, self._ahead, None)])
        if record is None:
            book.intents.write([row])
        elif standing_of(record) in (Standing.THERE, Standing.TAKEN_BACK):
            intend_change(ledger, lease, *self._of[1:], [(record.generation, book.intents.intent(row))])
        else:
            row = row._replace(generation=record.generation)
            ledger.intend_again(lease, *self._of[1:], [book.intents.intent(row)])
        state = self._state(row, record, there)
        made = there.resource_id if there else None
        ledger.settle(*self._of, [Outcome(row.key, row.generation, state, made, None)])
        book.loaded.add(state, row.amount_cents)

    def _state(self, row: AcceptedRow, record: KnownRecord | None, there: FoundResource | None) -> str:
        if there is None:
            return "in_doubt"
        if self._carried.is_taken_back(row, there):
            return "undone"
        if standing_of(record) is not Standing.THERE or record is None:
            return "adopted"
        return "updated" if there.generation == record.generation else "superseded"

    def _note_known(self, rows: Sequence[tuple[AcceptedRow, KnownRecord]]) -> None:
        """Count rows whose record the ledger has. A row that only the feed's policy can judge is left to the import.

        The content of a later file stays. An earlier row is noted with the moment at which its run began.
        """
        earlier = "skipped" if self._first_stays else "adopted"  # the content of such a row was not loaded
        repeats: dict[str, list[Repeat]] = {"unchanged": [], earlier: []}
        for row, record in rows:
            same, standing = record.holds(row.content_hash), standing_of(record)
            if not same and record.batch_id in self._later:
                state = earlier
            elif standing is Standing.IN_DOUBT:
                self._book.loaded.add("in_doubt", row.amount_cents)
                continue
            elif same and standing is Standing.THERE:
                state = "unchanged"
            else:
                continue
            self._book.loaded.add(state, row.amount_cents)
            repeats[state].append(as_repeat(row, state, record.resource_id if same else None))
        self._book.repeats.note(repeats["unchanged"])
        self._book.repeats.note(repeats[earlier], self._since)


def _next_generation(record: KnownRecord | None) -> int:
    """Return the generation of a row in doubt that would replace the known record."""
    return 1 if record is None else record.generation + (standing_of(record) is Standing.THERE)
