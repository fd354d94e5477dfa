"""Write the rows of a lost batch to the ledger."""

import duckdb

from pipelines.home.batch import ReceivedFile
from pipelines.ledger.lease import Lease
from pipelines.ledger.reject_state import close_answered
from pipelines.loading.book import Book
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.stage import note_to_come
from pipelines.runs.ending import end
from pipelines.session.session import Session
from pipelines.session.waiting_files import received_batches
from pipelines.verifying.doubting import LostBatchWriter
from pipelines.verifying.lost_runs import ValidatedBatch, end_runs


def adopt_batch(db: duckdb.DuckDBPyConnection, session: Session, lease: Lease, batch: ValidatedBatch) -> dict[str, int]:
    """Adopt a lost batch. Return its numbers of rows `adopted`, `taken_back`, `in_doubt`."""
    lost, run, validated = batch
    since, by = lost.begun(session.ledger.time_here(run.received.received_at))
    of_run = BatchRun(session.target, lost.name, run.feed, run.folder, True, session.pace)
    connection = session.connection
    to = (connection.client, connection.capabilities, connection.step(session.target, run.feed.resource))
    book = Book(Load(of_run, *to, session.ledger, lease, session.progress))
    note_to_come(book)
    LostBatchWriter(db, book, since, by, _later_batches(session, run.received)).write_all()
    close_answered(session.ledger, book.load.of, lost.name)
    end_runs(session, lost)
    end(session, run, validated, book.loaded)
    counts = book.loaded.counts
    landed = sum(counts[name] for name in ("adopted", "updated", "superseded"))
    return {"adopted": landed, "taken_back": book.loaded.noted["taken back"], "in_doubt": counts["in_doubt"]}


def _later_batches(session: Session, received: ReceivedFile) -> set[str]:
    """Return this batch and those whose files came after it."""
    others = received_batches(session, [row["batch_id"] for row in session.ledger.batches(session.target)])
    return {each.in_batch.batch_id for each in others if each.in_batch.received_at >= received.received_at}
