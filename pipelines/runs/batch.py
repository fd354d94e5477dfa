"""One batch through the stages, receive, validate and load, and the publication at the end.

The command line calls `import_file`. Dagster calls the steps: `beginning`, `validating`, `loading`, `ending`.
"""

from pathlib import Path

from pipelines.client.client import TargetUnusable
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Received, Unreadable
from pipelines.ledger.tables import NotPossible
from pipelines.receiving.stage import receive
from pipelines.reports.bulk import publish_bulk
from pipelines.reports.publish import Publication, publish
from pipelines.reports.publish_pseudonymous import publish_pseudonymous
from pipelines.runs.beginning import begin
from pipelines.runs.ending import end, end_without_load
from pipelines.runs.loading import load_run
from pipelines.runs.run import Result, Run
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.session.sweeping import sweep_target, sweep_written
from pipelines.session.waiting import Waiting
from pipelines.validation.outcome import Validated


def import_file(session: Session, waiting: Waiting, remap: bool = False) -> Result:
    """One file through all stages. Says what became of it; raises `LedgerError` and `LeaseLost` only.

    remap: rows that changed only because the feed did follow its policy too.
    """
    try:
        received = waiting.received or receive(waiting.path, waiting.feed, session.home, inbox=session.inbox)
    except Unreadable as error:
        gone = not waiting.path.exists() and not waiting.path.is_symlink()
        message = f"{waiting.name}: taken by another importer, or removed" if gone else str(error)
        return Result(None, None, waiting.feed.name, waiting.name, "gone" if gone else "failed", message=message)
    return run_batch(session, received, waiting.feed, whole=waiting.received is None or remap, remap=remap)


def run_batch(session: Session, received: Received, feed: Feed, whole: bool, remap: bool = False) -> Result:
    """A received file through validate and load; see `begin`. Raises `LedgerError` and `LeaseLost` only."""
    try:
        run = begin(session, received, feed, whole, remap=remap)
    except NotPossible as error:
        return Result(received.batch_id, None, feed.name, received.file_name, "failed", message=str(error))
    return run_through(session, run)


def run_through(session: Session, run: Run) -> Result:
    """A run through validate and load, to its end."""
    try:
        validated = validate_run(session, run)
    except Unreadable as error:
        return end_without_load(session, run, Validated(run.folder), "failed", str(error))
    except TargetUnusable as error:
        return end_without_load(session, run, Validated(run.folder), "running", str(error))
    if validated.stop:
        return end_without_load(session, run, validated, "stopped", f"{run.received.file_name}: {validated.stop}")
    return end(session, run, validated, load_run(session, run, validated))


def publish_reports(session: Session, is_asked_for: bool = False, pseudonymous: int = 0) -> Publication:
    """Sweep the reports and publish all tables in one step. Raises `TargetUnusable`, `PublicationError`.

    is_asked_for: see `sweep_target`. pseudonymous: the least count that a pseudonymous publication shows in a cell; 0
    for the ordinary one.
    """
    session.progress.stage("publish", "reports")
    swept = sweep_target(session, is_asked_for)
    if pseudonymous:
        published = publish_pseudonymous(session.home, session.ledger, swept, pseudonymous)
    else:
        published = publish(session.home, session.ledger, swept)
    session.ledger.copy_journal()
    session.progress.end()
    return published


def publish_in_bulk(session: Session, address: str) -> Path:
    """Read what the target shows, and publish it in bulk; return the manifest. Raises `TargetUnusable`.

    address: of the folder, as its readers will see it.
    """
    session.progress.stage("publish", "resources")
    swept = sweep_target(session, is_asked_for=True)
    sweep_written(session)
    manifest = publish_bulk(session.home, session.target, address, swept.started_at)
    session.progress.end()
    return manifest
