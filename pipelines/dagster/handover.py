"""The state that the asset `validated` leaves for `loaded` in the run's folder: counts and the number of the run."""

import json
import time
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fhir_service.paths import matching
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import ReceivedFile, received_before
from pipelines.home.files import write_whole
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.manifests import is_of, manifest_in
from pipelines.runs.beginning import begin
from pipelines.runs.lost_runs import refuse_lost
from pipelines.runs.part_plan import is_first
from pipelines.runs.run import Run, RunResult
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult, read_from, told_as

NEVER = datetime.min.replace(tzinfo=UTC)
HANDED_OVER, SIGNED = "validated.json", "dagster"


@dataclass(frozen=True)
class NewestRun:
    """The newest run of a batch at a target: validated and not yet loaded, or ended with a result.

    at: the time when it was validated or ended.
    """

    at: datetime = NEVER
    run: Run | None = None
    validated: ValidationResult | None = None
    result: RunResult | None = None


def hand_over(session: Session, run: Run, validated: ValidationResult) -> None:
    """Write the state that the load needs of a validated run into the run's folder."""
    about = {
        "target": session.target,
        "run": run.number,
        "started_at": run.started_at,
        "before": run.before,
        "feed_hash": run.feed.hash,
        "seconds": time.monotonic() - run.began,
        "ended_at": datetime.now(UTC).isoformat(),
        "validated": told_as(validated),
    }
    write_whole(run.folder / HANDED_OVER, json.dumps(about).encode())
    session.batches.keep(run.received.batch_id, f"{run.folder.name}/*")


def begin_signed(session: Session, received: ReceivedFile, feed: Feed) -> Run:
    """Begin a run of the batch, marked as made by Dagster: the sensor of the command line must not report it.

    Raises NotPossible.
    """
    run = begin(session, received, feed)
    write_whole(run.folder / SIGNED, session.target.encode())
    session.batches.keep(received.batch_id, f"{run.folder.name}/{SIGNED}")
    return run


def is_signed(batches: HomeBatches, target: str, batch_id: str, run: int) -> bool:
    """True if Dagster made the run."""
    folder = batches.renew(batch_id, f"run-*/{SIGNED}")
    found = [*matching(folder, f"run-{run}/{SIGNED}"), *matching(folder, f"run-{run}-*/{SIGNED}")]
    return any(path.read_bytes() == target.encode() for path in found)


def was_spread(batches: HomeBatches, batch_id: str) -> bool:
    """True if the first run of a batch was loaded in parts by several steps, once and from its beginning."""
    folder = batches.path / batch_id
    return any(map(is_first, [*matching(folder, "run-1"), *matching(folder, "run-1-*")]))


def newest(session: Session, feed: Feed, batch_id: str) -> NewestRun:
    """Return the newest run of the batch at the session's target.

    Empty if there is none, or if the run was validated and not loaded, and the feed changed since. Raises `NotPossible`
    for a run that may have been loaded in part without the ledger's knowledge, after the ledger failed over.
    """
    found: list[tuple[int, Path, dict[str, Any]]] = []
    for folder in matching(session.batches.renew(batch_id), "run-*"):
        manifest = manifest_in(folder)
        about = manifest if manifest and manifest["ended_at"] else _said(folder / HANDED_OVER)
        if about and is_of(about, session.target):
            found.append((about["run"], folder, about))
    if not found:
        return NewestRun()
    _, folder, about = max(found, key=lambda each: each[0])
    at = datetime.fromisoformat(about["ended_at"])
    if "state" in about:
        said = {each.name: about[each.name] for each in fields(RunResult) if each.name in about}
        return NewestRun(at, result=RunResult(**said))
    received = received_before(folder.parent)
    if received is None or about["feed_hash"] != feed.hash:
        return NewestRun()
    refuse_lost(session, feed, batch_id)
    began = time.monotonic() - about["seconds"]
    run = Run(received, feed, about["run"], folder, about["before"], began, about["started_at"])
    return NewestRun(at, run, read_from(folder, about["validated"]))


def _said(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
