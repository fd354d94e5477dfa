"""Import files and new rows of databases one after another, and publish once at the end."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import UnreadableFile
from pipelines.importing.begin_and_end import close_import
from pipelines.rehearsing.dry_run import try_file
from pipelines.runs.batch import import_file
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
from pipelines.session.queries import note_mark, rows_of_query
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile


def import_all(
    session: Session,
    summary: Summary,
    files: Sequence[WaitingFile],
    dry_run: bool = False,
    remap: bool = False,
    queries: Sequence[Feed] = (),
    again: Sequence[Callable[[], RunResult]] = (),
    whole: bool = False,
) -> Summary:
    """Run `again`, import files, then the rows of queries, and publish.

    again: a run for each batch with rejects that wait for a feed file. whole: import all rows of a query, not only
    those since the last time.
    """
    work: Iterable[Callable[[], RunResult | None]] = chain(
        again,
        (partial(_import, session, waiting, dry_run, remap) for waiting in files),
        (partial(_import_query, session, feed, summary, dry_run, whole) for feed in queries),
    )
    with summary.saying_why():
        if all(map(summary.take, work)) and not dry_run:
            close_import(session, summary)
    return summary


def _import(session: Session, waiting: WaitingFile, dry_run: bool, remap: bool = False) -> RunResult:
    return try_file(session, waiting) if dry_run else import_file(session, waiting, remap)


def _import_query(session: Session, feed: Feed, summary: Summary, dry_run: bool, whole: bool) -> RunResult | None:
    """Import the rows that a feed's database has; return None if there is nothing new. Raises `LedgerError`."""
    try:
        with rows_of_query(session, feed, whole) as found:
            if found.waiting is None:
                summary.nothing_new.append(feed.name)
                return None
            result = _import(session, found.waiting, dry_run)
            if not (dry_run or result.unusable):
                note_mark(session, found, result.batch_id, result.state)
            return result
    except UnreadableFile as error:
        return RunResult.failed(feed.name, feed.name, str(error))
