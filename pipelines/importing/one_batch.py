"""Imports of one batch that somebody names: again, or once its copayments are confirmed."""

from pipelines.corrections.again import plan_again
from pipelines.importing.carrying_out import import_all
from pipelines.importing.closing import summary_of
from pipelines.ledger.tables import NotPossible
from pipelines.runs.summary import Summary
from pipelines.session.confirmed import COMMAND, is_confirmed, waits
from pipelines.session.session import Session
from pipelines.session.waiting import received_batches

NO_BATCH = "{}: no such batch at this target (chartferry status lists them)"
NO_SOURCE = "{}: its source rows are not here: import its file once more, then try again"


def import_again(session: Session, batch_id: str) -> Summary:
    """Load what was taken back of a batch, or is gone from the target. Raises `NotPossible`, `TargetUnusable`."""
    if not session.ledger.batch(session.target, batch_id):
        raise NotPossible(NO_BATCH.format(batch_id))
    found = received_batches(session, [batch_id])
    if not found:
        raise NotPossible(NO_SOURCE.format(batch_id))
    plan_again(session, batch_id)
    return import_all(session, summary_of(session), found)


def import_confirmed(session: Session, batch_id: str) -> Summary:
    """Load a file of copayments alone that waits for a confirmation, and keep that. Raises `NotPossible`."""
    ledger, target = session.ledger, session.target
    if not ledger.batch(target, batch_id):
        raise NotPossible(NO_BATCH.format(batch_id))
    found = received_batches(session, [batch_id])
    if not found:
        raise NotPossible(NO_SOURCE.format(batch_id))
    if not is_confirmed(ledger, target, found[0].feed, batch_id):
        if not waits(ledger, target, batch_id):
            raise NotPossible(f"{batch_id}: it does not wait for a confirmation of its copayments")
        session.decide(COMMAND, [batch_id])
    return import_all(session, summary_of(session), found)
