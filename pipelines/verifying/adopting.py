"""`verify --adopt`: put in doubt what the runs of a home may have sent, whose ledger and journal are gone, and settle
it.

Batches with runs that the ledger lacks are validated again. A row whose resource carries its identifier is adopted. Any
other row that the ledger does not know is in doubt since the batch's first lost run began, and is looked up as every
doubt is. Nothing is sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import duckdb
import orjson

from pipelines.client.comparison import TAKEN_BACK, fingerprints
from pipelines.home.batch import Received, Unreadable, received_before
from pipelines.home.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE
from pipelines.ledger.former import intend_change
from pipelines.ledger.lease import Lease, utc_text
from pipelines.ledger.rejects import open_by_key
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Repeat, Sighting
from pipelines.ledger.standing import Standing, standing_of
from pipelines.ledger.states import LANDED
from pipelines.ledger.tables import COUNTS
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.book import Book
from pipelines.loading.intake import note_skipped
from pipelines.loading.loaded import Batch
from pipelines.loading.lookup import ahead
from pipelines.loading.sending import Identity, Row
from pipelines.runs.beginning import begin, note_batch
from pipelines.runs.ending import end, end_without_load
from pipelines.runs.loading import lease_of
from pipelines.runs.lost import LOOK, NOTED, LostBatch, lost_batches
from pipelines.runs.resolving import resolve
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.session.waiting import Waiting, received_batches, without_feed
from pipelines.validation.outcome import Validated
from pipelines.verifying.staging import workbench
from pipelines.verifying.target import stage_target

NOT_TOLD = "what it did is not told any more"
NEWEST = """
CREATE OR REPLACE TABLE newest AS
SELECT *, coalesce(spelling, record_key) AS today FROM there WHERE system = $1
QUALIFY row_number() OVER (PARTITION BY record_key ORDER BY record_generation DESC) = 1"""
"""Select, by key, the resource of the newest generation that carries it as identifier."""
CARRIES = """
SELECT today, id, record_generation, content, status FROM newest WHERE today IN (SELECT unnest($1))
QUALIFY row_number() OVER (PARTITION BY today ORDER BY spelling IS NOT NULL) = 1"""
"""Select, by key, the resource that carries it as it is written today, else in another spelling."""
STANDS = "SELECT id FROM there WHERE id IN (SELECT unnest($1)) AND status NOT IN ('entered-in-error', 'cancelled')"


class There(NamedTuple):
    """A resource that carries the identifier of a row. content: its fingerprint."""

    resource_id: str
    generation: int
    content: str | None
    status: str | None


@dataclass
class Adopted:
    """By batch: how many of its rows the target has (taken back: so many of these), and how many are in doubt.

    left: batches that could not be adopted, each with why.
    """

    batches: dict[str, dict[str, int]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        if any(each["in_doubt"] for each in self.batches.values()):
            return IN_DOUBT
        return SET_ASIDE if self.left else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        for name, counts in self.batches.items():
            yield f"{name}: {counts['adopted']:,} rows adopted, {counts['in_doubt']:,} in doubt"
            if back := counts["taken_back"]:
                yield f"{name}: {back:,} of them have been taken back there: chartferry import --again makes them anew"
        for name, why in self.left.items():
            yield f"{name}: not adopted: {why}"
        if not self.batches and not self.left:
            yield "the ledger knows every batch of this home"


def adopt_lost(session: Session) -> Adopted:
    """Take into the ledger what it lost, and settle what can be told of it. Raises `TargetUnusable`."""
    adopted = Adopted(left=without_feed(session))
    with lease_of(session) as lease, workbench(session.home) as db:
        lost = [(each, _waiting(session, each)) for each in lost_batches(session)]
        for each in (each for each, _ in lost if received_before(each.folder) is None):
            _note_runs(session, each)
            _end_runs(session, each)
            adopted.left[each.name] = f"its rows are not here any more: {LOOK}"
        found = _newest_first([(each, waiting) for each, waiting in lost if waiting])
        for kind in sorted({waiting.feed.resource for _, waiting in found}):
            stage_target(db, session, kind)
            for each, waiting in (pair for pair in found if pair[1].feed.resource == kind):
                try:
                    adopted.batches[each.name] = _adopt_batch(db, session, lease, each, waiting)
                except Unreadable as error:
                    adopted.left[each.name] = str(error)
        _close_answered(session)
    bare = {each.name: waiting for each, waiting in found if not session.is_safe(waiting.feed.resource)}
    for name in bare.keys() & adopted.batches.keys():
        counts, settled = adopted.batches[name], resolve(session, name)
        counts["adopted"] += len(settled.adopted)
        counts["in_doubt"] = len(settled.left)
    return adopted


def _waiting(session: Session, lost: LostBatch) -> Waiting | None:
    """The file of a batch; None where it is purged, or no feed describes it any more."""
    batch, received = session.ledger.batch(session.target, lost.name), received_before(lost.folder)
    named = batch["feed"] if batch else lost.name.rpartition("-")[0]
    feed = session.catalog.named(named)
    return Waiting(received.path_in_batch, feed, received) if feed and received else None


def _newest_first(found: Sequence[tuple[LostBatch, Waiting]]) -> list[tuple[LostBatch, Waiting]]:
    """Order lost batches by time: of a record that came several times, the target has the newest."""
    return sorted(found, key=lambda pair: _received(pair[1]).received_at, reverse=True)


def _received(waiting: Waiting) -> Received:
    assert waiting.received is not None  # noqa: S101 - these come from their batches
    return waiting.received


# -- one batch


def _adopt_batch(
    db: duckdb.DuckDBPyConnection, session: Session, lease: Lease, lost: LostBatch, waiting: Waiting
) -> dict[str, int]:
    """Count `adopted`, `taken_back`, `in_doubt`. Raises `Unreadable`."""
    session.decide("verify --adopt", [lost.name])
    since = min((str(each["started_at"]) for each in lost.manifests), default=utc_text(_received(waiting).received_at))
    note_batch(session, _received(waiting), waiting.feed)
    _note_runs(session, lost)
    run = begin(session, _received(waiting), waiting.feed, whole=True, adopting=True)
    try:
        validated = validate_run(session, run)
    except Unreadable as error:
        if not _may_have_sent(lost):
            _end_runs(session, lost)
        end_without_load(session, run, Validated(run.folder), "failed", str(error))
        raise
    batch = Batch(session.target, lost.name, run.feed, run.folder, True, session.pace)
    step, client = session.step(run.feed.resource), session.connection.client
    book = Book(batch, client, session.ledger, lease, session.progress, step)
    note_skipped(book)
    db.execute(NEWEST, [Identity(book.source, book.resource).system])
    doubting = Doubting(db, book, since, _later_batches(session, run.received))
    for rows in accepted_rows(run.folder / "accepted.parquet", since):
        doubting.write(rows)
    _end_runs(session, lost)
    end(session, run, validated, book.loaded)
    counts = book.loaded.counts
    landed = sum(counts[name] for name in ("adopted", "updated", "superseded"))
    return {"adopted": landed, "taken_back": book.loaded.taken_back, "in_doubt": counts["in_doubt"]}


def _later_batches(session: Session, received: Received) -> set[str]:
    """This batch and those whose files came after it."""
    others = received_batches(session, [row["batch_id"] for row in session.ledger.batches(session.target)])
    return {_received(each).batch_id for each in others if _received(each).received_at >= received.received_at}


class Doubting:
    """Writes the rows of one lost batch down.

    since: when the first of its lost runs began, as UTC text. later: this batch and those that came after it.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, book: Book, since: str, later: set[str]) -> None:
        self._db, self._book, self._since, self._later = db, book, since, later
        self._there: dict[str, There] = {}
        self._stands: set[str] = set()
        self._of = (book.batch.target, book.source, book.resource)
        self._ahead = ahead(book.client, datetime.now(UTC))
        self._supersedes = book.batch.feed.changed == "supersede" and book.resource == "QuestionnaireResponse"

    def write(self, rows: Sequence[Row]) -> None:
        """Adopt some rows, put others in doubt, and note those that the ledger knows."""
        book = self._book
        known = book.ledger.known(*self._of, [row.key for row in rows])
        carried = self._db.execute(CARRIES, [[row.key for row in rows]]).fetchall()
        self._there = {key: There(*rest) for key, *rest in carried}
        made = [record.resource_id for record in known.values() if record.resource_id]
        self._stands = {name for (name,) in self._db.execute(STANDS, [made]).fetchall()}
        with book.ledger.writing(book.lease):
            self._note_known([(row, known[row.key]) for row in rows if self._is_known(row, known.get(row.key))])
            for row in rows:
                if not self._is_known(row, record := known.get(row.key)):
                    self._settle(row, record, self._found(row, record))

    def _is_known(self, row: Row, record: KnownRecord | None) -> bool:
        """True if the ledger has the outcome of a row, or of a later row of its record."""
        if record is None or standing_of(record) in (Standing.ABSENT, Standing.WAITING):
            return False
        found = self._found(row, record)
        if (found and found.generation > record.generation) or self._is_gone(record):
            return False
        may_have_changed = self._supersedes or found is not None
        return row.is_held_by(record) or record.batch_id in self._later or not may_have_changed

    def _is_gone(self, record: KnownRecord) -> bool:
        """True if the target does not have any more what the ledger knows of: a lost run may have made it anew."""
        return standing_of(record) is Standing.THERE and record.resource_id not in self._stands

    def _found(self, row: Row, record: KnownRecord | None) -> There | None:
        """The resource that carries the row's key and has its content."""
        there = self._there.get(row.key)
        if there is None or there.content != fingerprints(self._book.resource, orjson.loads(row.body))[0]:
            return None
        return there if record is None or there.generation >= record.generation else None

    def _settle(self, row: Row, record: KnownRecord | None, there: There | None) -> None:
        """Write a row down as the resource that carries its key, or as a row in doubt."""
        book, ledger = self._book, self._book.ledger
        generation = there.generation if there else _next_generation(record)
        row = row._replace(generation=generation)
        if there is None and not book.step.named:
            ledger.intend(book.lease, *self._of[1:], [], [self._sighting(row)])
        if record is None:
            book.intend([row])
        elif standing_of(record) in (Standing.THERE, Standing.TAKEN_BACK):
            intend_change(ledger, book.lease, *self._of[1:], [(record.generation, self._intent(row))])
        else:
            row = row._replace(generation=record.generation)
            ledger.intend_again(book.lease, *self._of[1:], [self._intent(row)])
        state = self._state(row, record, there)
        made = there.resource_id if there else None
        ledger.settle(*self._of, [Outcome(row.key, row.generation, state, made, None)])
        book.loaded.add(state, row.amount_cents)

    def _sighting(self, row: Row) -> Sighting:
        """Return the sighting for a row that was sent without its key: its time alone."""
        return Sighting(row.patient_id or "", self._since, self._ahead, None)

    def _state(self, row: Row, record: KnownRecord | None, there: There | None) -> str:
        if there is None:
            return "in_doubt"
        back = TAKEN_BACK.get(self._book.resource)
        if back and there.status == back != orjson.loads(row.body).get("status"):
            return "undone"
        if standing_of(record) is not Standing.THERE or record is None:
            return "adopted"
        return "updated" if there.generation == record.generation else "superseded"

    def _intent(self, row: Row) -> Intent:
        about = (row.content_hash, self._book.batch.feed.hash, row.patient_id, row.source_at, row.amount_cents)
        return Intent(row.key, row.generation, self._book.batch.batch_id, row.line, *about, self._since)

    def _note_known(self, rows: Sequence[tuple[Row, KnownRecord]]) -> None:
        """Count rows whose record the ledger has. One that only the feed's policy can judge is left to the import.

        What a later file says of a record stands: an earlier row is noted as of when its run began, and stays so.
        """
        repeats: dict[str, list[Repeat]] = {"unchanged": [], "adopted": []}
        for row, record in rows:
            same, standing = row.is_held_by(record), standing_of(record)
            if not same and record.batch_id in self._later:
                state = "adopted"
            elif standing is Standing.IN_DOUBT:
                self._book.loaded.add("in_doubt", row.amount_cents)
                continue
            elif same and standing is Standing.THERE:
                state = "unchanged"
            else:
                continue
            self._book.loaded.add(state, row.amount_cents)
            about = (row.patient_id, row.source_at, row.amount_cents)
            repeats[state].append(Repeat(row.line, row.key, state, record.resource_id if same else None, *about))
        self._book.note(repeats["unchanged"])
        self._book.note(repeats["adopted"], self._since)


def _next_generation(record: KnownRecord | None) -> int:
    """Return the generation of a row in doubt that would replace the known record."""
    return 1 if record is None else record.generation + (standing_of(record) is Standing.THERE)


# -- runs and rejects


def _may_have_sent(lost: LostBatch) -> bool:
    """True if the file could be read then: one that cannot be now stays lost until it is put in again, or purged."""
    return bool(lost.untold) or any(manifest.get("state") != "failed" for manifest in lost.manifests)


def _note_runs(session: Session, lost: LostBatch) -> None:
    """Write the lost runs down, without their ends: they are lost until `_end_runs`, should this be killed before."""
    ledger, target = session.ledger, session.target
    runs, is_new = ledger.runs(target, lost.name), ledger.batch(target, lost.name) is None
    known = {run["started_at"]: run["run"] for run in runs}
    with ledger.transaction():
        if is_new:
            _note_batch(session, lost)
        for manifest in lost.manifests:
            about = {name: _text(manifest, name) for name in ("feed_hash", "rules_version", "software_version")}
            started_at = str(manifest["started_at"])
            number = known.get(started_at) or ledger.start_run(target, lost.name, started_at=started_at, **about)
            ledger.cut_off_run(target, lost.name, number, NOTED, NOT_TOLD)
        told = {str(manifest["started_at"]) for manifest in lost.manifests}
        for _ in range(lost.untold - sum(run["state"] == NOTED and run["started_at"] not in told for run in runs)):
            ledger.cut_off_run(target, lost.name, ledger.start_run(target, lost.name), NOTED, NOT_TOLD)


def _end_runs(session: Session, lost: LostBatch) -> None:
    """Give the lost runs the ends that their manifests have, so that they are not lost any more."""
    ledger, target = session.ledger, session.target
    manifests = {str(manifest["started_at"]): manifest for manifest in lost.manifests}
    noted = [run for run in ledger.runs(target, lost.name) if run["state"] == NOTED]
    with ledger.transaction():
        for run in noted:
            manifest = manifests.get(run["started_at"], {})
            ended_at = manifest.get("ended_at")
            ledger.finish_run(
                target,
                lost.name,
                run["run"],
                state=(_text(manifest, "state") if ended_at else None) or "failed",
                counts={name: said for name, said in manifest.get("counts", {}).items() if name in COUNTS},
                message=_text(manifest, "message") or NOT_TOLD,
                finished_at=ended_at,
            )


def _note_batch(session: Session, lost: LostBatch) -> None:
    """Note a batch without its file: the counts of its last run are all that is known."""
    last: dict[str, Any] = lost.manifests[-1] if lost.manifests else {}
    session.ledger.start_batch(
        session.target,
        lost.name,
        feed=_text(last, "feed") or lost.name.rpartition("-")[0],
        source=_text(last, "source"),
        resource_type=_text(last, "resource"),
        file_name=_text(last, "file"),
        file_sha256=_text(last, "file_sha256"),
    )
    session.ledger.finish_batch(session.target, lost.name, "failed", {}, last.get("ended_at"))


def _text(manifest: Mapping[str, Any], name: str) -> str | None:
    said = manifest.get(name)
    return said if isinstance(said, str) else None


def _close_answered(session: Session) -> None:
    """Close rejects whose record their own batch or a later one has loaded: batches were met out of turn."""
    batches = session.ledger.batches(session.target)
    came = {row["batch_id"]: row["received_at"] for row in batches}
    for batch in batches:
        name, of = batch["batch_id"], (session.target, batch["source"], batch["resource_type"])
        opened = open_by_key(session.ledger, session.target, name)
        for key, record in session.ledger.known(*of, opened).items():
            answers = record.batch_id == name or came[record.batch_id] > came[name]
            if answers and record.state in LANDED:
                session.ledger.close_rejects(*of, (), batch_id=record.batch_id, ids=opened[key])
