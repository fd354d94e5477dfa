"""`import --dry-run`: a file through every rule that needs no change of the target. Sends only reads, keeps nothing."""

import time
from pathlib import Path

from pipelines.client.client import TargetUnusable
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Unreadable
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.tables import COPAYMENTS
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.judging import Judge
from pipelines.loading.loaded import Batch, Loaded
from pipelines.receiving.stage import receive
from pipelines.runs.run import Result
from pipelines.runs.validating import rejects_left
from pipelines.session.answers import Answers
from pipelines.session.session import Session
from pipelines.session.spellings import known_spellings
from pipelines.session.waiting import Waiting
from pipelines.validation.renamed import known_elsewhere
from pipelines.validation.stage import Validated, validate
from pipelines.validation.unconfirmed import unconfirmed

STATES = {"sent": "waiting", "update": "waiting", "aside": "rejected", "undone": "skipped"}
"""The states by which verdicts are counted; other verdicts are states."""


def try_file(session: Session, waiting: Waiting) -> Result:
    """Return what an import of the file would set aside, what of it is known, and what it would send (`waiting`)."""
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
            session.snapshot_for(feed.resource),
            session.connection.site,
            folder / "run",
            strict=session.strict,
            known_as=known_spellings(session.ledger, session.target, feed),
            words=session.words_for(feed.resource),
            people=session.people.tables(received, feed),
        )
        validated.known_elsewhere = known_elsewhere(session, feed, received.batch_id, validated)
        validated.unconfirmed = unconfirmed(session, feed, received.batch_id, validated)
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
    loaded = _judged(session, waiting.feed, received.batch_id, validated)
    result.counts = loaded.counts_with(_counts(validated))
    result.waiting = loaded.counts["waiting"]
    result.message = f"{name}: {validated.stop}" if validated.stop else None
    result.reasons, result.warnings = dict(validated.reasons + loaded.reasons), dict(validated.warnings)
    result.unnamed_columns = list(validated.unnamed_columns)
    result.without_claim = validated.without_claim if validated.copayments else None
    result.seconds = round(time.monotonic() - began, 3)
    return result


def _counts(validated: Validated) -> dict[str, int]:
    names = "header lines not_taken records accepted rejected skipped amount_received amount_accepted".split()
    names += COPAYMENTS
    return {name: getattr(validated, name) for name in names}


def _judged(session: Session, feed: Feed, batch_id: str, validated: Validated) -> Loaded:
    """Count the accepted records as a load would, by what the ledger knows of them: `waiting` is what it would send."""
    batch, loaded = Batch(session.target, batch_id, feed, validated.folder, resuming=False, pace=session.pace), Loaded()
    judge = Judge(batch, session.ledger, session.is_safe(feed.resource), Answers.of(validated.folder))
    for rows in accepted_rows(validated.folder / "accepted.parquet", session.ledger.now()):
        known = session.ledger.known(session.target, feed.source, feed.resource, [row.key for row in rows])
        for row, _, verdict, reason in judge.judge(rows, known):
            loaded.add(STATES.get(verdict, verdict), row.amount_cents)
            if reason:
                loaded.reasons[reason.rule_id] += 1
    loaded.counts["skipped"] += validated.skipped
    loaded.counts["unchanged"] += validated.known
    return loaded
