"""`import --dry-run`: check a file by all rules that need no change of the target. Sends reads, keeps nothing."""

import time
from pathlib import Path

from pipelines.client.replies import TargetUnusable
from pipelines.home.batch import UnreadableFile
from pipelines.home.scratch import throwaway_folder
from pipelines.receiving.stage import receive
from pipelines.rehearsing.expected_counts import judged_counts
from pipelines.runs.counting import run_counts
from pipelines.runs.received import validate_received
from pipelines.runs.rejects_left import rejects_left
from pipelines.runs.run import RunResult
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile


def try_file(session: Session, waiting: WaitingFile) -> RunResult:
    """Return what an import of the file would set aside, what is known already, and what it would send (`waiting`)."""
    with throwaway_folder(session.home) as folder:
        return _try_in(session, waiting, folder)


def _try_in(session: Session, waiting: WaitingFile, folder: Path) -> RunResult:
    began, feed, name = time.monotonic(), waiting.feed, waiting.name
    try:
        received = receive(waiting.path, feed, folder, inbox=session.inbox)
        validated = validate_received(session, received, feed, folder / "run")
        for _ in rejects_left(session, feed, received.batch_id, validated):
            pass
    except UnreadableFile as error:
        return RunResult.failed(feed.name, name, str(error))
    except TargetUnusable as error:
        return RunResult.failed(feed.name, name, str(error), unusable=True)
    finally:
        session.progress.end()
    result = RunResult(received.batch_id, None, feed.name, name, "stopped" if validated.stop else "dry run")
    loaded = judged_counts(session, waiting.feed, received.batch_id, validated)
    result.counts = run_counts(validated, loaded)
    result.waiting = loaded.counts["waiting"]
    result.message = f"{name}: {validated.stop}" if validated.stop else None
    result.reasons, result.warnings = dict(validated.reasons + loaded.reasons), dict(validated.warnings)
    result.unnamed_columns = list(validated.unnamed_columns)
    result.without_claim = validated.without_claim if validated.copayments else None
    result.seconds = round(time.monotonic() - began, 3)
    return result
