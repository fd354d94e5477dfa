"""The stage `loaded` over the batches of a Dagster run, by the functions of the command line."""

import time
from collections.abc import Sequence
from datetime import datetime

from pipelines.dagster import metadata
from pipelines.dagster.checks import LoadedBatch
from pipelines.dagster.handover import NewestRun, begin_signed, newest, was_spread
from pipelines.dagster.stages.outcome import NO_FILE, NOTHING_SENT, StageOutcome
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import received_before
from pipelines.ledger.tables import LedgerError
from pipelines.runs.batch import run_through
from pipelines.runs.ending import end
from pipelines.runs.loading import load_run
from pipelines.runs.run import FINISHED, UNDER_WAY, HasEnded, RunResult, refuse_ended
from pipelines.session.session import Session

MANIFEST_SECONDS = 10.0
"""Seconds to wait for the manifest of a run that has ended; without it, the process was killed before writing it."""


def load_all(
    session: Session,
    feed: Feed,
    batch_ids: Sequence[str],
    since: datetime,
    outcome: StageOutcome,
    after_others: bool = False,
) -> StageOutcome:
    """Load the batches; return the outcome, to which each batch is added when it ends.

    since: batches that ended after this time, in this run or an earlier try of it, are not loaded again. after_others:
    True if other steps of this run have loaded parts; batches that they left with doubts are not loaded again.
    """
    for batch_id in batch_ids:
        is_new = not session.ledger.row_counts(session.target, batch_id)
        try:
            result, is_kept = _load_one(session, feed, batch_id, since, after_others, is_new)
        except LedgerError as error:
            outcome.fail(batch_id, str(error), retryable=True)
            continue
        if result is None:
            outcome.fail(batch_id, NO_FILE)
            continue
        if result.state == FINISHED:
            tells_sums = metadata.tells_sums(feed, result.run)
            outcome.done[batch_id] = metadata.of_loaded(result, session.target, tells_sums)
        else:
            outcome.fail(batch_id, _why(result), retryable=result.unusable)
        if result.state in (FINISHED, UNDER_WAY) and not result.unusable:
            first = result.run == 1 and (is_new or (is_kept and was_spread(session.batches, batch_id)))
            outcome.facts[batch_id] = LoadedBatch(result, session.ledger.row_counts(session.target, batch_id), first)
    return outcome


def _load_one(
    session: Session, feed: Feed, batch_id: str, since: datetime, after_others: bool, is_new: bool
) -> tuple[RunResult | None, bool]:
    """Load the newest validated run; return its result, and True if an earlier result was kept.

    The result is None if no file was received. If the run has ended, or the feed changed, the batch is validated again
    first. A batch that ended after `since`, such as one that was stopped before its load, keeps its result. So does a
    batch that another process ended meanwhile, after that process was taken for lost. is_new: True if no row of the
    batch was sent before.
    """
    found = newest(session, feed, batch_id)
    if found.run and found.validated:
        try:
            loaded = load_run(session, found.run, found.validated)
            refuse_ended(session, found.run)
            return end(session, found.run, found.validated, loaded, found.run.number == 1 and not is_new), False
        except HasEnded:
            found = _ended(session, feed, batch_id)
            if found.result:
                return found.result, True
    if found.result and found.at >= since and _is_kept(found.result, after_others):
        return found.result, True
    received = received_before(session.batches.folder(batch_id))
    return (run_through(session, begin_signed(session, received, feed)) if received else None), False


def _is_kept(result: RunResult, after_others: bool) -> bool:
    return result.state in (FINISHED, *NOTHING_SENT) or (after_others and not result.unusable)


def _ended(session: Session, feed: Feed, batch_id: str) -> NewestRun:
    """Return the newest run, which another process has just ended. Wait for its manifest, which is written last."""
    until = time.monotonic() + MANIFEST_SECONDS
    while not (found := newest(session, feed, batch_id)).result and time.monotonic() < until:
        time.sleep(1.0)
    return found


def _why(result: RunResult) -> str:
    return result.message or f"rows in doubt: {result.count('in_doubt'):,}; waiting for another run: {result.waiting:,}"
