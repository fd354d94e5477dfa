"""`import --dry-run`: a file through every rule that needs no change of the target. Sends only reads, keeps nothing."""

import time
from pathlib import Path

from pipelines.client.client import TargetUnusable
from pipelines.home.batch import Unreadable
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import batches
from pipelines.ledger.states import UNDECIDED
from pipelines.ledger.tables import COPAYMENTS
from pipelines.receiving.stage import receive
from pipelines.runs.batch import rejects_left
from pipelines.runs.run import Result
from pipelines.session.session import Session, Waiting
from pipelines.session.spellings import known_spellings
from pipelines.validation.renamed import known_elsewhere
from pipelines.validation.stage import Validated, validate

ROWS_A_LOOK = 2_000


def try_file(session: Session, waiting: Waiting) -> Result:
    """What an import of the file would set aside, and how many of its records the ledger knows (`unchanged`)."""
    with throwaway_folder(session.home) as folder:
        return _try_in(session, waiting, folder)


def _try_in(session: Session, waiting: Waiting, folder: Path) -> Result:
    began, feed, name = time.monotonic(), waiting.feed, waiting.name
    try:
        received = receive(waiting.path, feed, folder, inbox=session.inbox)
        session.progress.stage("validate", received.batch_id)
        validated = validate(
            received,
            feed,
            session.snapshot_for(feed),
            session.connection.site,
            folder / "run",
            strict=session.strict,
            known_as=known_spellings(session.ledger, session.target, feed),
        )
        validated.known_elsewhere = known_elsewhere(session, feed, received.batch_id, validated)
        for _ in rejects_left(session, feed, validated):
            pass
        session.progress.advance(validated.records)
    except Unreadable as error:
        return Result(None, None, feed.name, name, "failed", message=str(error))
    except TargetUnusable as error:
        return Result(None, None, feed.name, name, "failed", message=str(error), unusable=True)
    finally:
        session.progress.end()
    result = Result(received.batch_id, None, feed.name, name, "stopped" if validated.stop else "dry run")
    result.counts = _counts(validated) | _known(session, waiting, validated)
    result.waiting = validated.accepted - validated.skipped - result.count("unchanged") - result.count("changed")
    result.message = f"{name}: {validated.stop}" if validated.stop else None
    result.reasons, result.warnings = dict(validated.reasons), dict(validated.warnings)
    result.unnamed_columns = list(validated.unnamed_columns)
    result.seconds = round(time.monotonic() - began, 3)
    return result


def _counts(validated: Validated) -> dict[str, int]:
    names = "header lines not_taken records accepted rejected skipped amount_received amount_accepted".split()
    names += COPAYMENTS
    return {name: getattr(validated, name) for name in names}


def _known(session: Session, waiting: Waiting, validated: Validated) -> dict[str, int]:
    """How many accepted records the ledger knows with the same content, and with other content."""
    counts = {"unchanged": validated.known, "changed": 0}
    feed = waiting.feed
    for part in batches(validated.folder / "accepted.parquet", ROWS_A_LOOK, ["key", "content_hash"]):
        hashes = dict(zip(part.column("key").to_pylist(), part.column("content_hash").to_pylist(), strict=True))
        known = session.ledger.known(session.target, feed.source, feed.resource, hashes)
        for record in known.values():
            if record.state not in (*UNDECIDED, "refused"):
                counts["unchanged" if record.holds(hashes[record.key]) else "changed"] += 1
    return counts
