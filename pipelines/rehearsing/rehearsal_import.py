"""Import into the copies of a rehearsal, and keep the facts about each row."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import UnreadableFile
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.rehearsing.report import RehearsedFile
from pipelines.rehearsing.watching_ledger import WatchedLedger
from pipelines.runs.batch import import_file
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
from pipelines.session.queries import rows_of_query
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile


def try_out(
    session: Session, summary: Summary, files: Iterable[WaitingFile], queries: Sequence[Feed], ledger: WatchedLedger
) -> list[RehearsedFile]:
    """Import files, and then new rows of databases; return the files with the facts about their rows."""
    tried: list[RehearsedFile] = []
    for number, waiting in enumerate(_with_queries(session, files, queries, summary)):
        events = session.home / f"events-{number}.parquet"
        if not summary.take(partial(_try, session, waiting, events, ledger, tried)):
            break
    settle_resubmitted(ledger, session.target)
    return tried


def _try(
    session: Session, waiting: WaitingFile, events: Path, ledger: WatchedLedger, tried: list[RehearsedFile]
) -> RunResult:
    with ledger.watching(events):
        result = import_file(session, waiting)
    snapshot = session.snapshot_for(waiting.feed.resource) if result.count("refused") else None
    tried.append(RehearsedFile(result, waiting.feed, events, session.connection.site, snapshot))
    return result


def _with_queries(
    session: Session, files: Iterable[WaitingFile], queries: Sequence[Feed], summary: Summary
) -> Iterator[WaitingFile]:
    """Yield the files, and then the new rows of the feeds' databases."""
    yield from files
    for feed in queries:
        try:
            with rows_of_query(session, feed) as got:
                if got.waiting:
                    yield got.waiting
                else:
                    summary.nothing_new.append(feed.name)
        except UnreadableFile as error:
            summary.results.append(RunResult.failed(feed.name, feed.name, str(error)))
