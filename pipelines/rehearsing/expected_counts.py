"""The counts that a load would have: the ledger's knowledge of the accepted records, and what they refer to at the
target. Nothing is sent.
"""

from pipelines.feeds.files.catalog import Feed
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.judging import RowJudge
from pipelines.loading.load_counts import BatchRun, LoadCounts
from pipelines.loading.references import References
from pipelines.session.answered_rejects import LoadAnswers
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult

STATES = {"sent": "waiting", "update": "waiting", "aside": "rejected", "undone": "skipped"}
"""The states by which verdicts are counted; any other verdict is a state itself."""


def judged_counts(session: Session, feed: Feed, batch_id: str, validated: ValidationResult) -> LoadCounts:
    """Count the accepted records as a load would. `waiting` counts those to send."""
    batch = BatchRun(session.target, batch_id, feed, validated.folder, resuming=False, pace=session.pace)
    loaded, at = LoadCounts(), session.connection
    missing = References.at(at.client, at.capabilities, feed.resource, session.progress).reasons
    answers = LoadAnswers.of(validated.folder)
    judge = RowJudge(batch, session.ledger, session.is_safe(feed.resource), answers, missing)
    for rows in accepted_rows(validated.folder / "accepted.parquet", session.ledger.now()):
        known = session.ledger.known(session.target, feed.source, feed.resource, [row.key for row in rows])
        for row, _, verdict, reason in judge.judge(rows, known):
            loaded.add(STATES.get(verdict, verdict), row.amount_cents)
            if reason:
                loaded.reasons[reason.rule_id] += 1
    loaded.counts["skipped"] += validated.skipped
    loaded.counts["unchanged"] += validated.known
    return loaded
