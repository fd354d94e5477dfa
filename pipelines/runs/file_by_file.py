"""The runs over files and over the new rows of databases, one after another."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import UnreadableFile
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
from pipelines.session.queries import note_mark, rows_of_query
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile

Do = Callable[[WaitingFile], RunResult]
"""Runs one file. Raises `LedgerError`."""


def runs_of(
    session: Session,
    summary: Summary,
    files: Iterable[WaitingFile],
    queries: Sequence[Feed],
    do: Do,
    whole: bool = False,
) -> Iterator[Callable[[], RunResult | None]]:
    """Yield the work for each file, then for each database. whole: all rows of a query, not only new ones.

    summary: gets the feeds whose databases have nothing new.
    """
    yield from (partial(do, waiting) for waiting in files)
    yield from (partial(_of_query, session, summary, feed, do, whole) for feed in queries)


def _of_query(session: Session, summary: Summary, feed: Feed, do: Do, whole: bool) -> RunResult | None:
    """Run the rows that a feed's database has; return None if there is nothing new. Raises `LedgerError`."""
    try:
        with rows_of_query(session, feed, whole) as found:
            if found.waiting is None:
                summary.nothing_new.append(feed.name)
                return None
            result = do(found.waiting)
            if not result.unusable:
                note_mark(session, found, result.batch_id, result.state)
            return result
    except UnreadableFile as error:
        return RunResult.failed(feed.name, feed.name, str(error))
