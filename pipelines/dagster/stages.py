"""The stages of an import over the batches of a Dagster run: a batch that fails does not stop the others.

They call the functions of the command line, so that both write the same ledger and folders.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import dagster as dg

from pipelines.dagster import metadata
from pipelines.dagster.checks import LoadedBatch
from pipelines.dagster.handover import hand_over, newest, sign
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.marks import marked_form
from pipelines.home.batch import Received, Unreadable, received_before
from pipelines.home.inbox import Inbox
from pipelines.ledger.tables import LedgerError, NotPossible
from pipelines.receiving.stage import receive
from pipelines.runs.batch import run_through
from pipelines.runs.beginning import begin
from pipelines.runs.ending import end, end_without_load
from pipelines.runs.loading import load_run
from pipelines.runs.run import Result, Run
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.validation.stage import Validated

UNDER_WAY, FINISHED = "running", "finished"
NOTHING_SENT = ("stopped", "failed")


@dataclass
class Outcome:
    """The result of a stage. done: metadata of each batch that succeeded. failed: a sentence for each that did not.

    retryable: at least one failed batch may succeed if tried again.
    """

    done: dict[str, metadata.Metadata] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    retryable: bool = False

    def fail(self, batch_id: str, sentence: str, retryable: bool = False) -> None:
        self.failed[batch_id] = sentence
        self.retryable |= retryable


def failure(ended: Mapping[str, str], outcome: Outcome) -> dg.Failure:
    """Return the failure of a stage. ended: a sentence for each batch that does not go on."""
    files = {batch_id: f" ({about['file']})" for batch_id, about in outcome.done.items() if about.get("file")}
    sentences = "; ".join(f"{batch_id}{files.get(batch_id, '')}: {sentence}" for batch_id, sentence in ended.items())
    counts = {"batches_failed": len(ended), "batches_done": len(outcome.done.keys() - ended.keys())}
    return dg.Failure(sentences, counts, allow_retries=outcome.retryable)


def receive_all(feed: Feed, home: Path, batch_ids: Sequence[str], inbox: Inbox | None = None) -> Outcome:
    outcome, waiting = Outcome(), waiting_files(feed, home / "inbox", set(batch_ids))
    for batch_id in batch_ids:
        try:
            path = waiting.get(batch_id)
            found = receive(path, feed, home, inbox=inbox) if path else received_before(home / "batches" / batch_id)
        except Unreadable as error:
            outcome.fail(batch_id, str(error))
            continue
        if found is None:
            outcome.fail(batch_id, "no file: it is not in the inbox any more, or its batch was purged")
        elif found.batch_id != batch_id:
            outcome.fail(batch_id, f"{found.file_name} changed meanwhile: it is the batch {found.batch_id} now")
        else:
            outcome.done[batch_id] = metadata.of_received(found)
    return outcome


def waiting_files(feed: Feed, inbox: Path, batch_ids: set[str]) -> dict[str, Path]:
    """Return the files of these batches in the inbox, by batch."""
    found: dict[str, Path] = {}
    for path in sorted(inbox.iterdir()) if inbox.is_dir() else ():
        if len(found) == len(batch_ids) or not path.is_file() or path.name.startswith("."):
            continue
        if feed.takes(path.name) or marked_form(path):
            try:
                batch_id = batch_id_of(feed, path)
            except OSError:
                continue
            if batch_id in batch_ids:
                found[batch_id] = path
    return found


def batch_id_of(feed: Feed, path: Path) -> str:
    """Return the id of the file's batch: the feed and the first 12 digits of the file's hash."""
    with path.open("rb") as file:
        return f"{feed.name}-{hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"


def validate_all(
    session: Session, feed: Feed, batch_ids: Sequence[str], since: datetime, outcome: Outcome
) -> dict[str, Validated]:
    """Validate the batches; return what the checks need, by batch.

    since: batches validated after this time, by an earlier try of this run, are not validated again.
    """
    facts: dict[str, Validated] = {}
    for batch_id in batch_ids:
        earlier = newest(session, feed, batch_id)
        received = received_before(session.home / "batches" / batch_id)
        if received is None:
            outcome.fail(batch_id, "nothing was received")
            continue
        try:
            if earlier.run and earlier.validated and earlier.at >= since:
                run, validated = earlier.run, earlier.validated
            else:
                run, validated = _validate_one(session, _begin(session, received, feed))
        except (Unreadable, NotPossible) as error:
            outcome.fail(batch_id, str(error))
            continue
        facts[batch_id] = validated
        seconds = time.monotonic() - run.began
        outcome.done[batch_id] = metadata.of_validated(received.file_name, validated, seconds, metadata.is_money(feed))
    return facts


def _begin(session: Session, received: Received, feed: Feed) -> Run:
    """Begin a run of the batch, marked as made by Dagster. Raises NotPossible."""
    run = begin(session, received, feed)
    sign(session, run)
    return run


def _validate_one(session: Session, run: Run) -> tuple[Run, Validated]:
    """Validate the run; end it if nothing may be sent. Raises Unreadable, and the failures of reads from the target."""
    try:
        validated = validate_run(session, run)
    except Exception as error:
        state, message = (
            ("failed", str(error)) if isinstance(error, Unreadable) else (UNDER_WAY, "it was not validated to its end")
        )
        end_without_load(session, run, state, message)
        raise
    if validated.stop:
        end_without_load(session, run, "stopped", f"{run.received.file_name}: {validated.stop}", validated)
    else:
        hand_over(session, run, validated)
    return run, validated


def load_all(
    session: Session, feed: Feed, batch_ids: Sequence[str], since: datetime, outcome: Outcome
) -> dict[str, LoadedBatch]:
    """Load the batches; return what the checks need, by batch.

    since: batches that ended after this time, in this run or an earlier try of it, are not loaded again.
    """
    facts: dict[str, LoadedBatch] = {}
    for batch_id in batch_ids:
        is_new = not session.ledger.row_counts(session.target, batch_id)
        try:
            result = _load_one(session, feed, batch_id, since)
        except LedgerError as error:
            outcome.fail(batch_id, str(error), retryable=True)
            continue
        if result is None:
            outcome.fail(batch_id, "nothing was received")
            continue
        if result.state == FINISHED:
            outcome.done[batch_id] = metadata.of_loaded(result, session.connection.label, metadata.is_money(feed))
        else:
            outcome.fail(batch_id, _why(result), retryable=result.unusable)
        if result.state in (FINISHED, UNDER_WAY) and not result.unusable:
            first = result.run == 1 and is_new
            facts[batch_id] = LoadedBatch(result, session.ledger.row_counts(session.target, batch_id), first)
    return facts


def _load_one(session: Session, feed: Feed, batch_id: str, since: datetime) -> Result | None:
    """Load the newest validated run; return None if no file was received.

    If that run has ended, or the feed changed, the batch is validated again first. A batch that ended after `since`,
    such as one that was stopped before its load, keeps its result.
    """
    found = newest(session, feed, batch_id)
    if found.run and found.validated:
        return end(session, found.run, found.validated, load_run(session, found.run, found.validated))
    if found.result and found.result.state in (FINISHED, *NOTHING_SENT) and found.at >= since:
        return found.result
    received = received_before(session.home / "batches" / batch_id)
    return run_through(session, _begin(session, received, feed)) if received else None


def _why(result: Result) -> str:
    return result.message or f"{result.count('in_doubt'):,} rows are in doubt, {result.waiting:,} wait for another run"
