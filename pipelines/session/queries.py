"""Feeds whose rows come from a database: each is asked for new rows, which become a file like any other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.query import run_query
from pipelines.feeds.reading.query_marks import Watermark
from pipelines.home.batch import batch_name
from pipelines.home.files import sha256_of
from pipelines.home.scratch import throwaway_folder
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile

TAKEN_IN = ("finished", "running")
"""The states of a batch whose rows are loaded, set aside, or waiting in it."""


@dataclass(frozen=True)
class QueryResult:
    """The result of a query: a file of rows, None if there is nothing new; and the mark up to which it read."""

    feed: Feed
    waiting: WaitingFile | None
    mark: Watermark | None


def with_queries(session: Session) -> list[Feed]:
    """Return the feeds that have a query."""
    return [feed for feed in session.catalog.feeds if feed.file.query]


@contextmanager
def rows_of_query(session: Session, feed: Feed, whole: bool = False) -> Iterator[QueryResult]:
    """Run a feed's query, for all rows or those since its mark. The file is removed at the end. Raises Unreadable."""
    known = None if whole else session.ledger.mark(session.target, feed.name, feed.query_hash)
    with throwaway_folder(session.home) as folder:
        path = folder / f"{feed.name}.rows"
        found = run_query(feed, path, Watermark(*known) if known else None, datetime.now(UTC))
        is_new = found.rows > 0 and (whole or not _is_known(session, feed, path))
        yield QueryResult(feed, WaitingFile(path, feed) if is_new else None, found.mark)


def _is_known(session: Session, feed: Feed, path: Path) -> bool:
    """True if these rows are a finished batch that was read by the present feed."""
    sha256 = sha256_of(path)
    batch_id = batch_name(feed.name, sha256)
    row = session.ledger.batch(session.target, batch_id)
    runs = session.ledger.runs(session.target, batch_id)
    return bool(row and row["state"] == "finished" and row["file_sha256"] == sha256) and any(
        run["feed_hash"] == feed.hash for run in runs[-1:]
    )


def note_mark(session: Session, asked: QueryResult, batch_id: str | None, state: str) -> None:
    """Note how far the database was read, once the rows up to there are in a batch that was not stopped."""
    if asked.mark and batch_id and state in TAKEN_IN:
        session.ledger.note_mark(session.target, asked.feed.name, asked.feed.query_hash, batch_id, *asked.mark)
