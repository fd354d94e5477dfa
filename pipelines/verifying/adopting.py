"""Rebuilding a lost ledger: the batches that it does not know are validated again and matched with the target.

Which row made what is told by `matching.py`; what is not told is left to the next import. Nothing is sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import orjson

from pipelines.batch import Received, Unreadable
from pipelines.behind import ledger_is_behind
from pipelines.exits import ALL_LOADED, SET_ASIDE
from pipelines.ledger.lease import Lease, utc_text
from pipelines.ledger.rejects import open_by_key
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.tables import LANDED
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.book import Book
from pipelines.loading.loaded import Batch
from pipelines.loading.outcomes import short
from pipelines.loading.sending import Identity, Row
from pipelines.pipeline import begin, end, end_without_load, lease_of, validate_run
from pipelines.session import Session, Waiting, received_batches, received_before, unfinished, without_feed
from pipelines.validation.outcome import Validated
from pipelines.verifying.compare import OWN_TIME, TAKEN_BACK, fingerprints
from pipelines.verifying.matching import ROWS, match_rows
from pipelines.verifying.restoring import FOUND, LIVE, Match, Restored, says
from pipelines.verifying.staging import Filling, stage_ledger, stage_records_of, stage_target, workbench
from pipelines.verifying.told import WITHDRAWN, stage_runs, stage_told_of
from pipelines.verifying.without_rows import note_others, purged_and_lost, restore_batch, restore_records, untold

OPEN = ("planned", "sending", "in_doubt")
PAYMENTS = "PaymentNotice"
NAMED = 5


@dataclass
class Adopted:
    """By batch: how many of its rows the target has (taken back: so many of these), and how many it has not.

    without_rows: of how many records, by batch, only that is known which is on record: their rows are purged, or their
    feed rejects them by now. left: batches that cannot be read. unclaimed: by type, the patients of rows that wait who
    have resources that no row was matched with, at a target that the next import cannot ask by key.
    """

    batches: dict[str, dict[str, int]] = field(default_factory=dict)
    without_rows: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    unclaimed: dict[str, list[str]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return SET_ASIDE if self.left or any(each["waiting"] for each in self.batches.values()) else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        for name, counts in self.batches.items():
            yield f"{name}: {counts['adopted']:,} rows adopted, {counts['waiting']:,} wait for the next import"
            if back := counts["taken_back"]:
                yield f"{name}: {back:,} of them have been taken back there: chartferry import --again makes them anew"
        for name, records in self.without_rows.items():
            yield f"{name}: {records:,} records known again by what is on record of them, without their rows"
        for name, why in self.left.items():
            yield f"{name}: not adopted: {why}"
        for kind, patients in self.unclaimed.items():
            named = f"{', '.join(patients[:NAMED])}{' and others' if len(patients) > NAMED else ''}"
            yield (
                f"{kind}: {len(patients):,} patients of rows that wait have some there that no row is matched with"
                f" ({named}); look into the chart before the next import, which sends these rows"
            )
        if not self.batches and not self.without_rows and not self.left:
            yield "the ledger knows every batch of this home"


def adopt_lost(session: Session) -> Adopted:
    """Rebuilds what the ledger lost: rows of batches that it does not know, or knows less of than their folders do.

    Raises `TargetUnusable`.
    """
    adopted = Adopted(left=without_feed(session))
    with lease_of(session) as lease, workbench(session.home) as db:
        lost, purged = _in_order(session, lost_batches(session)), purged_and_lost(session)
        stage_ledger(db, session)
        stage_runs(db, session)
        db.execute("CREATE TABLE waits (kind VARCHAR, patient_id VARCHAR)")
        kinds = sorted({*(waiting.feed.resource for waiting in lost), *purged.values()})
        for kind in kinds:
            _stage_free(db, session, kind)
        for waiting in lost:
            name = batch_of(waiting)
            try:
                adopted.batches[name] = _adopt_batch(db, session, lease, waiting, adopted.without_rows)
            except Unreadable as error:
                adopted.left[name] = str(error)
        adopted.left |= untold(session)
        adopted.without_rows |= dict.fromkeys(purged, 0)
        for kind in kinds:
            adopted.without_rows |= restore_records(db, session, lease, kind, purged)
        note_others(db, session, purged)
        for name in purged:  # last, since a batch whose runs are known is lost no more
            if missing := restore_batch(db, session, name):
                adopted.left[name] = missing
        _close_answered(session)
        unasked = [kind for kind in kinds if not session.connection.capabilities.safe_batches(kind)]
        adopted.unclaimed = {kind: patients for kind in unasked if (patients := _with_unclaimed(db, kind))}
    return adopted


def _close_answered(session: Session) -> None:
    """Closes rejects whose record their own batch or one that came later has loaded: batches were met out of turn."""
    batches = session.ledger.batches(session.target)
    came = {row["batch_id"]: row["received_at"] for row in batches}
    here = received_batches(session, list(came))
    came |= {batch_of(each): utc_text(_received(each).received_at) for each in here}
    for batch in batches:
        name, of = batch["batch_id"], (session.target, batch["source"], batch["resource_type"])
        opened = open_by_key(session.ledger, session.target, name)
        for key, record in session.ledger.known(*of, opened).items():
            answers = record.batch_id == name or came[record.batch_id] > came[name]
            if answers and record.state in LANDED:
                session.ledger.close_rejects(*of, (), batch_id=record.batch_id, ids=opened[key])


def _with_unclaimed(db: duckdb.DuckDBPyConnection, kind: str) -> list[str]:
    """The patients of rows that wait who have resources that may be what these rows made, unlike as they look."""
    query = (
        f"SELECT DISTINCT patient_id FROM waits SEMI JOIN (FROM there_of_{kind} AS there WHERE NOT {WITHDRAWN}) AS free"
        " USING (patient_id) WHERE kind = $1 ORDER BY ALL"
    )
    return [patient for (patient,) in db.execute(query, [kind]).fetchall()]


def _in_order(session: Session, lost: Sequence[Waiting]) -> list[Waiting]:
    """The newest batch goes first: of a record that came several times it is the newest that the target has.

    Payments without identifiers may go by content, the oldest first: a payment is never changed, so what a later file
    says under its key was set aside, and must not take the equal payment of another row.
    """
    named = session.connection.capabilities.safe_batches(PAYMENTS)
    first = [each for each in lost if each.feed.resource == PAYMENTS and not named]
    return [*first, *(each for each in reversed(lost) if each not in first)]


def lost_batches(session: Session) -> list[Waiting]:
    """Received batches of which the ledger knows nothing though they had a run, or lost runs, oldest first."""
    batches = session.home / "batches"
    feeds = {row["batch_id"]: row["feed"] for row in session.ledger.batches()}
    unknown = [
        w for w in unfinished(session) if batch_of(w) not in feeds and any((batches / batch_of(w)).glob("run-*"))
    ]
    behind = [
        Waiting(received.path_in_batch, feed, received)
        for name in feeds
        if ledger_is_behind(session.home, session.ledger, session.target, name)
        and (feed := session.catalog.named(feeds[name]))
        and (received := received_before(batches / name))
    ]
    return sorted([*unknown, *behind], key=lambda each: _received(each).received_at)


def batch_of(waiting: Waiting) -> str:
    """The name of a received batch."""
    return _received(waiting).batch_id


def _received(waiting: Waiting) -> Received:
    assert waiting.received is not None  # noqa: S101 - these come from their batches
    return waiting.received


def _stage_free(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Tables `there_of_<kind>`: the target's resources that the ledger does not know; `gone_of_<kind>`: the keys of
    records whose resource the target does not have, or has as one that was taken back; and what runs left on record.
    """
    stage_target(db, session, kind)
    stage_records_of(db, kind)
    states = ", ".join(f"'{state}'" for state in LIVE)
    db.execute(
        f"CREATE TABLE gone_of_{kind} AS SELECT source, key FROM ours"
        f" ANTI JOIN (FROM there WHERE NOT {WITHDRAWN}) AS live ON live.id = ours.resource_id WHERE state IN ({states})"
    )
    stage_told_of(db, kind)
    db.execute("DELETE FROM there WHERE id IN (SELECT resource_id FROM known)")
    db.execute(f"CREATE TABLE there_of_{kind} AS FROM there")


def _adopt_batch(
    db: duckdb.DuckDBPyConnection, session: Session, lease: Lease, waiting: Waiting, without_rows: dict[str, int]
) -> dict[str, int]:
    """Counts `adopted`, `taken_back`, `waiting`. Raises `Unreadable`, and `TargetUnusable`: the batch stays lost."""
    session.decide("verify --adopt", [_received(waiting).batch_id])
    run = begin(session, _received(waiting), waiting.feed, whole=True, adopting=True)
    try:
        validated = validate_run(session, run)
    except Unreadable as error:
        end_without_load(session, run, Validated(run.folder), "failed", str(error))
        raise
    kind, accepted = run.feed.resource, run.folder / "accepted.parquet"
    batch = Batch(session.target, run.received.batch_id, run.feed, run.folder, True, session.pace)
    safe = session.connection.capabilities.safe_batches(kind)
    book = Book(batch, session.connection.client, session.ledger, lease, session.progress, safe)
    db.execute(f"CREATE OR REPLACE TABLE there AS FROM there_of_{kind}")
    for view, table in (("told_here", "told_of"), ("last_told", "last_of")):
        db.execute(f"CREATE OR REPLACE VIEW {view} AS FROM {table}_{kind}")
    _stage_rows(db, book, accepted)
    match_rows(db, book.source, kind, run.received.batch_id)
    book.note_skipped()
    restored = Restored(db, book, run.received, _later_batches(session, run.received))
    for first, rows, known in _numbered(book, accepted):
        found = db.execute("SELECT * FROM match WHERE n BETWEEN $1 AND $2", [first, first + len(rows) - 1]).fetchall()
        matches = {n: Match(*rest) for n, *rest in found}
        restored.write([(row, matches.get(n)) for n, row in enumerate(rows, first)], known)
    db.execute(f"DELETE FROM there_of_{kind} WHERE id IN (SELECT id FROM match)")
    left = "(FROM row ANTI JOIN match USING (n)) AS unmatched"
    query = f"SELECT DISTINCT $1, patient_id FROM read_parquet($2) SEMI JOIN {left} USING (key)"
    db.execute(f"INSERT INTO waits {query}", [kind, str(accepted)])
    without_rows |= restore_records(db, session, lease, kind, [run.received.batch_id], accepted)
    result = end(session, run, validated, book.loaded)
    counts, back = book.loaded.counts, book.loaded.taken_back
    return {"adopted": sum(counts[name] for name in FOUND), "taken_back": back, "waiting": result.waiting}


def _later_batches(session: Session, received: Received) -> set[str]:
    """Batches whose files came after this one."""
    others = received_batches(session, [row["batch_id"] for row in session.ledger.batches(session.target)])
    return {_received(each).batch_id for each in others if _received(each).received_at > received.received_at}


def _numbered(book: Book, accepted: Path) -> Iterator[tuple[int, list[Row], dict[str, KnownRecord]]]:
    """Rows of the file some at a time, with the number of the first, and what the ledger knows of them."""
    first = 0
    for rows in accepted_rows(accepted, book.moment()):
        yield first, rows, book.ledger.known(book.batch.target, book.source, book.resource, [row.key for row in rows])
        first += len(rows)


def _stage_rows(db: duckdb.DuckDBPyConnection, book: Book, accepted: Path) -> None:
    """Table `row`: the rows of which the ledger does not know what came of them."""
    kind, own_time = book.resource, OWN_TIME.get(book.resource, "")
    system = Identity(book.source, kind).system
    with Filling(db, "row", ROWS) as table:
        for first, rows, known in _numbered(book, accepted):
            lost = _lost(db, book, rows, known)
            for n, row in enumerate(rows, first):
                if row.key not in known or row.key in lost:
                    body = orjson.loads(row.body)
                    content, timed = fingerprints(kind, body)
                    back = int(body.get("status") == TAKEN_BACK.get(kind, ""))
                    dated = timed if own_time in body else None
                    table.add((n, row.key, row.line, short(row.content_hash), system, content, dated, back))


def _lost(db: duckdb.DuckDBPyConnection, book: Book, rows: Sequence[Row], known: Mapping[str, KnownRecord]) -> set[str]:
    """Keys of known records of the same content that have no outcome, or whose resource the target does not have, or
    of which it has one of a later generation; and those of which the ledger knows that it was refused, and no more."""
    here = {row.key: known[row.key] for row in rows if row.key in known}
    news = _news(db, book, rows, here)
    same = {row.key: here[row.key] for row in rows if row.key in here and says(here[row.key], row)}
    if not same:
        return news
    query = f"SELECT key FROM gone_of_{book.resource} WHERE source = $1 AND key IN (SELECT unnest($2))"
    gone = {key for (key,) in db.execute(query, [book.source, list(same)]).fetchall()}
    unsettled = {key for key, record in same.items() if record.state in (*OPEN, "refused")}
    return news | gone | unsettled | _of_later_generations(db, book, same)


def _news(db: duckdb.DuckDBPyConnection, book: Book, rows: Sequence[Row], known: Mapping[str, KnownRecord]) -> set[str]:
    """Keys of known records of which a run that the ledger lost has left on record that these rows made or changed
    what the target has."""
    query = (
        "SELECT key, content, generation, resource_id FROM told_here"
        " WHERE source = $1 AND key IN (SELECT unnest($2)) AND news = 1"
    )
    told = {key: rest for key, *rest in db.execute(query, [book.source, list(known)]).fetchall()}
    said = {row.key: short(row.content_hash) for row in rows}
    return {
        key
        for key, (content, generation, resource_id) in told.items()
        if content == said[key]
        and generation >= known[key].generation
        and (content, generation, resource_id) != _of_record(known[key])
    }


def _of_record(record: KnownRecord) -> tuple[str, int, str | None]:
    return short(record.content_hash), record.generation, record.resource_id


def _of_later_generations(db: duckdb.DuckDBPyConnection, book: Book, known: Mapping[str, KnownRecord]) -> set[str]:
    newest = f"""
        SELECT record_key, max(record_generation) FROM there_of_{book.resource}
        WHERE system = $1 AND record_key IN (SELECT unnest($2)) GROUP BY record_key"""
    found = db.execute(newest, [Identity(book.source, book.resource).system, list(known)]).fetchall()
    return {key for key, generation in found if generation > known[key].generation}
