"""Writing a lost ledger anew, row by row: what was found at the target, what is known by now, what was left open."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from pipelines.batch import Received
from pipelines.ledger.former import raise_generation
from pipelines.ledger.lease import utc_text
from pipelines.ledger.rows import KnownRecord, Outcome, Repeat
from pipelines.ledger.tables import LANDED
from pipelines.loading.book import Book
from pipelines.loading.outcomes import CHANGE_REFUSED, short
from pipelines.loading.sending import Result, Row
from pipelines.loading.shared_notes import SharedNotes

FOUND = ("adopted", "updated", "superseded")
LIVE = ("created", *FOUND)
FATES = {**dict.fromkeys(LIVE, "gone"), "undone": "withdrawn"}
"""Of the resource of a record in this state that is not the newest."""


NOT_THERE = ("planned", "refused")
ASKED = "SELECT unnest($rows, recursive := true)"
ITSELF = "(told.content = said OR (told.batch_id = $batch AND told.line = row_line))"
"""Whether what is told is of this very row: of its content, or of its line, which a feed may read otherwise by now."""


class Match(NamedTuple):
    """A row's resource at the target, the generation that made it, and what the row therefore is."""

    generation: int
    resource_id: str
    state: str


class Open(NamedTuple):
    """What a run has left on record last of a row that made nothing that is known of: it was refused, or in doubt.

    is_news: whether the ledger does not know that run.
    """

    generation: int
    state: str
    status: int | None
    asked_at: str | None
    is_news: bool


class Restored:
    """The rows of one batch, as the ledger had them. later: batches whose files came after this one."""

    def __init__(self, db: duckdb.DuckDBPyConnection, book: Book, received: Received, later: Collection[str]) -> None:
        self._db, self._book = db, book
        self._came, self._not_earlier = utc_text(received.received_at), {*later, received.batch_id}

    def write(self, rows: Sequence[tuple[Row, Match | None]], known: Mapping[str, KnownRecord]) -> None:
        """Writes some rows down, and counts them; what the ledger cannot be told of is left to the next import."""
        if not rows:
            return
        left_open = self._left_open([row for row, _ in rows])
        found = [(row, match) for row, match in rows if match]
        others = [row for row, match in rows if not match]
        newest = {key: record.generation for key, record in known.items() if record.state not in NOT_THERE}
        newest |= {row.key: match.generation for row, match in found}
        again = {key for key, was in left_open.items() if was.is_news and was.generation > newest.get(key, 0)}
        for row, state in self._settle(found, known):
            if row.key not in again:
                self._book.loaded.add(state, row.amount_cents)
        others = [row for row in others if row.key not in again]
        others = self._note_refused(others)
        others = self._note_former(others)
        self._note_known([(row, known[row.key]) for row in others if row.key in known])
        self._leave_open([(row, left_open[row.key]) for row, _ in rows if row.key in again])

    def _left_open(self, rows: Sequence[Row]) -> dict[str, Open]:
        """By key, what is on record last of these very rows, where that was no resource."""
        found = self._db.execute(
            f"SELECT key, generation, state, http_status, asked_at, news = 1 FROM last_told AS told JOIN ({ASKED})"
            f" USING (key) WHERE source = $source AND state IN ('refused', 'in_doubt') AND {ITSELF}",
            self._about(rows),
        )
        return {key: Open._make(about) for key, *about in found.fetchall()}

    def _note_refused(self, rows: Sequence[Row]) -> list[Row]:
        """Notes rows that were refused as changes of their records, where that was the last of them, in a run that the
        ledger does not know; gives the others.
        """
        if not rows:
            return []
        found = self._db.execute(
            "SELECT key, http_status FROM ("
            f" SELECT told.* FROM told JOIN ({ASKED}) USING (key) WHERE source = $source AND resource_type = $kind"
            f" AND {ITSELF} QUALIFY row_number() OVER (PARTITION BY key ORDER BY place DESC) = 1)"
            " WHERE state = $refused AND news = 1",
            {**self._about(rows), "kind": self._book.resource, "refused": CHANGE_REFUSED},
        )
        refused: dict[str, int | None] = dict(found.fetchall())
        self._book.note_refused_changes([(row, _refused(refused[row.key])) for row in rows if row.key in refused])
        return [row for row in rows if row.key not in refused]

    def _note_former(self, rows: Sequence[Row]) -> list[Row]:
        """Notes rows of which it is on record that they made or changed what another has changed since: they are what
        they were, as of the time when they came. Gives the others.
        """
        if not rows:
            return []
        found = self._db.execute(
            f"SELECT told.key, last(told.resource_id ORDER BY told.place) FROM told JOIN ({ASKED}) USING (key)"
            " JOIN told_here AS now ON now.source = told.source AND now.key = told.key AND now.place > told.place"
            f" AND now.content <> told.content WHERE told.source = $source AND told.resource_type = $kind"
            f" AND told.resource_id IS NOT NULL AND {ITSELF} GROUP BY told.key",
            {**self._about(rows), "kind": self._book.resource},
        )
        made: dict[str, str] = dict(found.fetchall())
        former = [row for row in rows if row.key in made]
        for row in former:
            self._book.loaded.add("adopted", row.amount_cents)
        repeats = [
            Repeat(row.line, row.key, "adopted", made[row.key], row.patient_id, row.source_at, row.amount_cents)
            for row in former
        ]
        self._book.note(repeats, self._came)
        return [row for row in rows if row.key not in made]

    def _about(self, rows: Sequence[Row]) -> dict[str, Any]:
        """What `ASKED` and `ITSELF` are asked with."""
        asked = [{"key": row.key, "said": short(row.content_hash), "row_line": row.line} for row in rows]
        return {"rows": asked, "source": self._book.source, "batch": self._book.batch.batch_id}

    def _settle(
        self, found: Sequence[tuple[Row, Match]], known: Mapping[str, KnownRecord]
    ) -> Iterator[tuple[Row, str]]:
        """Writes matched rows down as adopted, of the generation that made their resource; gives their states."""
        if not found:
            return
        book = self._book
        plain = [(row, match) for row, match in found if not _is_changed(row, known.get(row.key))]
        rows = [(_of_generation(book, row, match.generation, known.get(row.key)), match) for row, match in plain]
        book.intend([row for row, _ in rows])
        for row, match in found:
            if (record := known.get(row.key)) and _is_changed(row, record):
                rows.append(_in_place_of(book, row, match, record))
        if notes := SharedNotes.of(book.batch, book.client, book.ledger):
            notes.keep(book.lease, [row for row, _ in rows if row.source_at])
        book.on_record.note((row, Result(match.state, match.resource_id)) for row, match in rows)
        outcomes = [Outcome(row.key, row.generation, match.state, match.resource_id, None) for row, match in rows]
        book.ledger.settle(book.batch.target, book.source, book.resource, outcomes)
        yield from ((row, match.state) for row, match in rows)

    def _note_known(self, rows: Sequence[tuple[Row, KnownRecord]]) -> None:
        """Counts rows whose record the ledger has already: of a later batch, or of what it did not lose.

        One that changes what an earlier batch said, or whose record was refused, waits for the next import.
        """
        repeats = []
        for row, record in rows:
            same = record.holds(row.content_hash)
            if record.state == "in_doubt":
                self._book.loaded.add("in_doubt", row.amount_cents)
            elif record.state in LANDED and (same or record.batch_id in self._not_earlier):
                state = "unchanged" if same else "skipped"
                self._book.loaded.add(state, row.amount_cents)
                about = (row.patient_id, row.source_at, row.amount_cents)
                repeats.append(Repeat(row.line, row.key, state, record.resource_id, *about))
        self._book.note(repeats)

    def _leave_open(self, rows: Sequence[tuple[Row, Open]]) -> None:
        """Rows that were refused are rejects again; what was in doubt is so again, since it may arrive yet."""
        book = self._book
        known = book.ledger.known(book.batch.target, book.source, book.resource, [row.key for row, _ in rows])
        results = []
        for row, was in rows:
            again = _of_generation(book, row, was.generation, known.get(row.key))
            asked = again._replace(first_attempt_at=was.asked_at or row.first_attempt_at)
            results.append((asked, _refused(was.status) if was.state == "refused" else Result(was.state)))
        book.write_down([row for row, _ in results], [])
        book.write_down([], results)


def says(record: KnownRecord, row: Row) -> bool:
    """Whether a row is what is known of its record; of one that was refused nothing is at the target."""
    return record.holds(row.content_hash) or record.state == "refused"


def _is_changed(row: Row, record: KnownRecord | None) -> bool:
    """Whether a row says other than what is known of its record, which the target had as that."""
    return record is not None and not says(record, row)


def _in_place_of(book: Book, row: Row, match: Match, record: KnownRecord) -> tuple[Row, Match]:
    """Writes down that a matched row has changed the record, or taken its place, which the ledger has lost."""
    now = record.generation
    while now < match.generation - 1:
        raise_generation(book.ledger, book.lease, [(book.source, book.resource, row.key, now)], "gone")
        now += 1
    row = row._replace(generation=match.generation, known=True)
    book.change(now, row)
    landed = "updated" if match.generation == now else "superseded"
    return row, match._replace(state=landed if match.state == "adopted" else match.state)


def _of_generation(book: Book, row: Row, generation: int, record: KnownRecord | None) -> Row:
    """The row under this generation or a later one: a known record is raised to it, past a resource that is gone."""
    if record is None:
        return row._replace(generation=generation)
    now, fate = record.generation, FATES.get(record.state) if record.resource_id else None
    while fate or now < generation:
        raise_generation(book.ledger, book.lease, [(book.source, book.resource, row.key, now)], fate)
        now, fate = now + 1, None
    return row._replace(known=True, generation=now)


def _refused(status: int | None) -> Result:
    said = {"text": f"the target refused it (HTTP {status}); what it said was lost with the ledger"}
    return Result("refused", None, status, said)
