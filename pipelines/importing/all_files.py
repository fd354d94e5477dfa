"""Import files and new rows of databases one after another, and publish once at the end."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from pipelines.feeds.files.catalog import Feed
from pipelines.importing.begin_and_end import close_import
from pipelines.rehearsing.dry_run import try_file
from pipelines.runs.batch import import_file
from pipelines.runs.file_by_file import runs_of
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
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
    do = partial(try_file, session) if dry_run else partial(import_file, session, remap=remap)
    with summary.saying_why():
        if all(map(summary.take, chain(again, runs_of(session, summary, files, queries, do, whole)))) and not dry_run:
            close_import(session, summary)
    return summary
