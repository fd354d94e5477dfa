"""Validate a lost batch again, and write its rows to the ledger."""

import duckdb

from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.ledger.lease import Lease, utc_text
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun
from pipelines.runs.beginning import begin, note_batch
from pipelines.runs.ending import end, end_unread
from pipelines.runs.lost_runs import LostBatch
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile, received_batches
from pipelines.verifying.doubting import LostBatchWriter
from pipelines.verifying.lost_runs import end_runs, may_have_sent, note_runs


def adopt_batch(
    db: duckdb.DuckDBPyConnection, session: Session, lease: Lease, lost: LostBatch, waiting: WaitingFile
) -> dict[str, int]:
    """Adopt a lost batch. Return its numbers of rows `adopted`, `taken_back`, `in_doubt`. Raises `UnreadableFile`."""
    session.decide("verify --adopt", [lost.name])
    came = utc_text(session.ledger.of_here(waiting.in_batch.received_at))
    since, by = lost.begun(came)
    note_batch(session, waiting.in_batch, waiting.feed)
    note_runs(session, lost)
    run = begin(session, waiting.in_batch, waiting.feed, whole=True, adopting=True)
    try:
        validated = validate_run(session, run)
    except UnreadableFile as error:
        if not may_have_sent(lost):
            end_runs(session, lost)
        end_unread(session, run, error)
        raise
    batch = BatchRun(session.target, lost.name, run.feed, run.folder, True, session.pace)
    connection = session.connection
    to = (connection.client, connection.capabilities, connection.step(session.target, run.feed.resource))
    load = Load(batch, *to, session.ledger, lease, session.progress)
    loaded = LostBatchWriter(db, load, since, by, _later_batches(session, run.received)).write_all()
    end_runs(session, lost)
    end(session, run, validated, loaded)
    counts = loaded.counts
    landed = sum(counts[name] for name in ("adopted", "updated", "superseded"))
    return {"adopted": landed, "taken_back": loaded.taken_back, "in_doubt": counts["in_doubt"]}


def _later_batches(session: Session, received: ReceivedFile) -> set[str]:
    """Return this batch and those whose files came after it."""
    others = received_batches(session, [row["batch_id"] for row in session.ledger.batches(session.target)])
    return {each.in_batch.batch_id for each in others if each.in_batch.received_at >= received.received_at}
