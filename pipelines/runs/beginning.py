"""Begin a run: note batch and run in the ledger, and make the run's folder with its manifest."""

import time
from dataclasses import replace
from pathlib import Path

from fhir_service.paths import matching
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.packed import unpacked_sha256
from pipelines.home.batch import SOURCE, ReceivedFile, received_before
from pipelines.home.scratch import remove_abandoned
from pipelines.runs.ending import result_of
from pipelines.runs.killed_runs import lines_left, retry_of
from pipelines.runs.lost_runs import refuse_lost
from pipelines.runs.manifest import rules_version, software_version, write_manifest
from pipelines.runs.run import Lines, Run, refuse_ended_by_undo
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult


def begin(
    session: Session,
    received: ReceivedFile,
    feed: Feed,
    whole: bool = False,
    adopting: bool = False,
    only: Lines | None = None,
    remap: bool = False,
    taken_back: bool = False,
) -> Run:
    """Note batch and run in the ledger, and make the run's folder.

    only, remap, taken_back: as in `Run`. whole: True to run over the whole file. Else, if a run over some records of a
    finished batch was cut off or left doubts, this run is over the rows left.
    Raises `NotPossible` if sending could make second resources, since the ledger lacks earlier runs; not while
    adopting. Raises it too for a batch that undo has ended.
    """
    target, batch_id = session.target, received.batch_id
    if not adopting:
        refuse_lost(session, feed, batch_id)
    refuse_ended_by_undo(session, batch_id)
    batch = session.batches.renew(batch_id)
    session.batches.keep(batch_id, *SOURCE)
    if there := received_before(batch):  # equal bytes may have come under another name meanwhile
        received = replace(received, path_in_batch=there.path_in_batch)
    before = note_batch(session, received, feed)
    if before == "running" and not whole and (retry := retry_of(session, batch_id)):
        before, only = "finished", lines_left(session, batch_id, retry) if only is None else only
    if remap:
        session.decide("import --remap", [batch_id])
    number = session.ledger.start_run(
        target,
        batch_id,
        feed_hash=feed.hash,
        key_hash=feed.key_hash,
        rules_version=rules_version(),
        software_version=software_version(),
    )
    remove_abandoned(matching(batch, "run-*"))
    folder = _run_folder(session, batch, number)
    [started_at] = (run["started_at"] for run in session.ledger.runs(target, batch_id) if run["run"] == number)
    run = Run(received, feed, number, folder, before, time.monotonic(), started_at, only, remap, taken_back)
    write_manifest(session, run, result_of(run, ValidationResult(folder), {}, None, "running"), None)
    session.batches.keep(batch_id, f"{folder.name}/*")
    return run


def note_batch(session: Session, received: ReceivedFile, feed: Feed) -> str | None:
    """Note a batch if it is new; return the state that it had, None if it is new.

    A batch of which nothing was sent gets the source and kind of today's feed, which may have changed.
    """
    known = session.ledger.batch(session.target, received.batch_id)
    is_read_otherwise = known and (known["source"], known["resource_type"]) != (feed.source, feed.resource)
    if is_read_otherwise and not session.ledger.row_counts(session.target, received.batch_id):
        session.ledger.read_batch_as(session.target, received.batch_id, feed.source, feed.resource)
    if known is None:
        session.ledger.start_batch(
            session.target,
            received.batch_id,
            feed=feed.name,
            source=feed.source,
            resource_type=feed.resource,
            file_name=received.file_name,
            file_sha256=received.sha256,
            content_sha256=unpacked_sha256(received.path_in_batch),
            received_at=session.ledger.time_here(received.received_at),
        )
    return known["state"] if known else None


def _run_folder(session: Session, batch: Path, number: int) -> Path:
    """Return a new folder `run-<n>`. With another ledger or target, numbers begin anew; older folders stay."""
    names = [f"run-{number}", *(f"run-{number}-{copy}" for copy in range(2, 1000))]
    for name in names:
        try:
            (batch / name).mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        if session.batches.claim(batch.name, name):
            return batch / name
        (batch / name).rmdir()
    raise FileExistsError(batch / names[-1])
