"""Import into the copies of a rehearsal, and keep the facts about each row."""

from collections.abc import Iterable, Sequence

from pipelines.feeds.files.catalog import Feed
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.rehearsing.report import RehearsedFile
from pipelines.rehearsing.watching_ledger import WatchedLedger
from pipelines.runs.batch import import_file
from pipelines.runs.file_by_file import runs_of
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile


def try_out(
    session: Session, summary: Summary, files: Iterable[WaitingFile], queries: Sequence[Feed], ledger: WatchedLedger
) -> list[RehearsedFile]:
    """Import files, and then new rows of databases; return the files with the facts about their rows."""
    tried: list[RehearsedFile] = []

    def try_one(waiting: WaitingFile) -> RunResult:
        events = session.home / f"events-{len(tried)}.parquet"
        with ledger.watching(events):
            result = import_file(session, waiting)
        snapshot = session.snapshot_for(waiting.feed.resource) if result.count("refused") else None
        tried.append(RehearsedFile(result, waiting.feed, events, session.connection.site, snapshot))
        return result

    all(map(summary.take, runs_of(session, summary, files, queries, try_one)))
    settle_resubmitted(ledger, session.target)
    return tried
