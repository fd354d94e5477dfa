"""The import of a rehearsal: a session with the copies, and the files that it imports."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from pipelines.feeds.files.catalog import home_catalog
from pipelines.home.inbox import Inbox
from pipelines.home.progress import Progress
from pipelines.rehearsing.copying import RehearsalInput, bring_unfinished
from pipelines.rehearsing.rehearsal_import import try_out
from pipelines.rehearsing.report import RehearsedFile
from pipelines.rehearsing.watching_ledger import WatchedLedger
from pipelines.runs.summary import Summary
from pipelines.session.connections import connect
from pipelines.session.opening import session_at
from pipelines.session.queries import with_queries
from pipelines.session.waiting_files import find_files, unfinished


def try_import(
    wanted: RehearsalInput,
    folder: Path,
    ours: Mapping[str, str],
    environ: Mapping[str, str],
    label: str,
    progress: Progress,
) -> tuple[Summary, list[RehearsedFile]]:
    """Import the wanted files with the copies in a folder; return summary, and files with facts about their rows.

    ours: the environment in which the copied store is served. environ: that of the command. label: the store's name.
    """
    catalog, inbox = home_catalog(wanted.home, environ, wanted.feeds), Inbox.of(wanted.home, environ)
    ledger = WatchedLedger.open(folder / "ledger.db", journal=False)
    with closing(ledger), connect(folder, ours, say=progress.say) as connection:
        session = session_at(connection, folder, catalog, ledger, inbox, progress=progress, strict=True)
        summary = Summary(f"{label} ({session.target}), thrown away", session.target)
        summary.looked_in = wanted.paths or [inbox.folder]
        found, summary.unmatched = find_files(summary.looked_in, catalog, ledger, inbox)
        if wanted.paths:
            return summary, try_out(session, summary, found, (), ledger)
        bring_unfinished(wanted.home, environ, session)
        return summary, try_out(session, summary, [*unfinished(session), *found], with_queries(session), ledger)
