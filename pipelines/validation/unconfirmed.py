"""Stop a file of copayments alone, from a feed that never had one: its claims may only say where money was posted."""

from pipelines.feeds.files.catalog import Feed
from pipelines.ledger.states import MADE
from pipelines.session.confirmed import COMMAND, is_confirmed
from pipelines.session.session import Session
from pipelines.validation.outcome import Validated

FEWEST = 20
"""Payments of a file that is asked about. In a smaller one copayments alone are no surprise."""


def unconfirmed(session: Session, feed: Feed, batch_id: str, validated: Validated) -> str | None:
    """The sentences why a file of copayments alone waits for a person; None for one that may go."""
    payments = validated.records - validated.skipped
    if not validated.copayments or validated.without_claim[0] or payments < FEWEST:
        return None
    if _was_sent(session, batch_id) or _has_had_some(session, feed, batch_id):
        return None
    if is_confirmed(session.ledger, session.target, feed, batch_id):
        return None
    return (
        f"all {validated.copayments:,} payments that could be read have a claim, which makes them copayments, and the "
        f"feed {feed.name} never had any: nothing was sent. If they are copayments: chartferry {COMMAND} {batch_id}, "
        'or copayments = "all" in the feed file. If not, map claim_id with when, or not at all'
    )


def _was_sent(session: Session, batch_id: str) -> bool:
    """True if rows of the batch are in the ledger, as of one that an earlier version began to load."""
    return bool(session.ledger.row_counts(session.target, batch_id))


def _has_had_some(session: Session, feed: Feed, batch_id: str) -> bool:
    """True if another batch of the feed had copayments, and records of it are at the target."""
    others = (row for row in session.ledger.batches(session.target) if row["batch_id"] != batch_id)
    return any(row["feed"] == feed.name and row["copayments"] and any(row[name] for name in MADE) for row in others)
