"""Run one batch through the stages: receive, validate and load.

The command line calls `import_file`. Dagster calls the steps: `beginning`, `validating`, `loading`, `ending`.
"""

from fhir_service.paths import exists, is_link
from pipelines.client.replies import TargetUnusable
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.ledger.tables import NotPossible
from pipelines.receiving.stage import receive
from pipelines.runs.beginning import begin
from pipelines.runs.ending import end, end_stopped, end_unread, end_without_load
from pipelines.runs.loading import load_run
from pipelines.runs.run import Lines, Run, RunResult
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile


def import_file(session: Session, waiting: WaitingFile, remap: bool = False) -> RunResult:
    """Import one file through all stages; return its result. Raises only `LedgerError` and `LeaseLost`.

    remap: apply the feed's policy also to rows that changed only because the feed did.
    """
    try:
        received = waiting.received or receive(
            waiting.path, waiting.feed, session.home, inbox=session.inbox, batches=session.batches
        )
    except UnreadableFile as error:
        gone = not exists(waiting.path) and not is_link(waiting.path)
        message = f"{waiting.name}: taken by another importer, or removed" if gone else str(error)
        return RunResult(None, None, waiting.feed.name, waiting.name, "gone" if gone else "failed", message=message)
    try:
        run = begin(session, received, waiting.feed, whole=waiting.received is None or remap, remap=remap)
    except NotPossible as error:
        return RunResult(received.batch_id, None, waiting.feed.name, received.file_name, "failed", message=str(error))
    return run_through(session, run)


def run_over(session: Session, received: ReceivedFile, feed: Feed, lines: Lines, taken_back: bool = False) -> RunResult:
    """Run a batch once more, over the records that begin on these lines; see `begin`."""
    return run_through(session, begin(session, received, feed, only=lines, taken_back=taken_back))


def run_through(session: Session, run: Run) -> RunResult:
    """Take a run through validate and load, to its end."""
    try:
        validated = validate_run(session, run)
    except UnreadableFile as error:
        return end_unread(session, run, error)
    except TargetUnusable as error:
        return end_without_load(session, run, "running", str(error))
    if validated.stop:
        return end_stopped(session, run, validated)
    return end(session, run, validated, load_run(session, run, validated))
