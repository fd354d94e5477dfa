"""The stage `validated` over the batches of a Dagster run, by the functions of the command line."""

import time
from collections.abc import Sequence
from datetime import datetime

from pipelines.dagster import metadata
from pipelines.dagster.handover import begin_signed, hand_over, newest
from pipelines.dagster.stages.outcome import NO_FILE, StageOutcome
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import UnreadableFile, received_before
from pipelines.ledger.tables import NotPossible
from pipelines.runs.ending import end_stopped, end_unread, end_without_load
from pipelines.runs.run import UNDER_WAY, Run
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult


def validate_all(session: Session, feed: Feed, batch_ids: Sequence[str], since: datetime) -> StageOutcome:
    """Validate the batches. Those validated after `since`, by an earlier try of this run, are not validated again."""
    outcome = StageOutcome()
    for batch_id in batch_ids:
        try:
            earlier = newest(session, feed, batch_id)
            received = received_before(session.batches.folder(batch_id))
            if received is None:
                outcome.fail(batch_id, NO_FILE)
                continue
            if earlier.run and earlier.validated and earlier.at >= since:
                run, validated = earlier.run, earlier.validated
            else:
                run, validated = _validate_one(session, begin_signed(session, received, feed))
        except (UnreadableFile, NotPossible) as error:
            outcome.fail(batch_id, str(error))
            continue
        outcome.facts[batch_id] = validated
        if validated.stop:
            outcome.held[batch_id] = validated.stop
        seconds = time.monotonic() - run.began
        outcome.done[batch_id] = metadata.of_validated(
            received.file_name, validated, seconds, metadata.tells_sums(feed, run.number)
        )
    return outcome


def _validate_one(session: Session, run: Run) -> tuple[Run, ValidationResult]:
    """Validate the run; end it if nothing may be sent. Raises Unreadable, and the failures of reads from the target."""
    try:
        validated = validate_run(session, run)
    except UnreadableFile as error:
        end_unread(session, run, error)
        raise
    except Exception:
        end_without_load(session, run, UNDER_WAY, "its validation did not finish")
        raise
    if validated.stop:
        end_stopped(session, run, validated)
    else:
        hand_over(session, run, validated)
    return run, validated
