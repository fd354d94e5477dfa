"""The counts that a load would have, from the ledger's knowledge of the accepted records. Nothing is sent."""

from pipelines.feeds.files.catalog import Feed
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.judging import RowJudge
from pipelines.loading.loaded import BatchRun, LoadCounts
from pipelines.session.answers import LoadAnswers
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult

STATES = {"sent": "waiting", "update": "waiting", "aside": "rejected", "undone": "skipped"}
"""The states by which verdicts are counted; any other verdict is a state itself."""


def judged_counts(session: Session, feed: Feed, batch_id: str, validated: ValidationResult) -> LoadCounts:
    """Count the accepted records as a load would, by what the ledger knows. `waiting` counts those to send."""
    batch, loaded = (
        BatchRun(session.target, batch_id, feed, validated.folder, resuming=False, pace=session.pace),
        LoadCounts(),
    )
    judge = RowJudge(batch, session.ledger, session.is_safe(feed.resource), LoadAnswers.of(validated.folder))
    for rows in accepted_rows(validated.folder / "accepted.parquet", session.ledger.now()):
        known = session.ledger.known(session.target, feed.source, feed.resource, [row.key for row in rows])
        for row, _, verdict, reason in judge.judge(rows, known):
            loaded.add(STATES.get(verdict, verdict), row.amount_cents)
            if reason:
                loaded.reasons[reason.rule_id] += 1
    loaded.counts["skipped"] += validated.skipped
    loaded.counts["unchanged"] += validated.known
    return loaded
