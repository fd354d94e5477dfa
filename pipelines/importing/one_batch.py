"""Imports of one batch that somebody names: again, or once its copayments are confirmed."""

from pipelines.corrections.again import plan_again
from pipelines.importing.carrying_out import import_all
from pipelines.importing.closing import summary_of
from pipelines.ledger.tables import NotPossible
from pipelines.runs.summary import Summary
from pipelines.session.confirmed import COMMAND, is_confirmed, waits
from pipelines.session.session import Session
from pipelines.session.waiting import Waiting, received_batches


def import_again(session: Session, batch_id: str) -> Summary:
    """Load what was taken back of a batch, or is gone from the target. Raises `NotPossible`, `TargetUnusable`."""
    found = _received(session, batch_id)
    plan_again(session, batch_id)
    return import_all(session, summary_of(session), [found])


def import_confirmed(session: Session, batch_id: str) -> Summary:
    """Load a file of copayments alone that waits for a confirmation, and keep that. Raises `NotPossible`."""
    ledger, target, found = session.ledger, session.target, _received(session, batch_id)
    if not is_confirmed(ledger, target, found.feed, batch_id):
        if not waits(ledger, target, batch_id):
            raise NotPossible(f"{batch_id}: it does not wait for a confirmation of its copayments")
        session.decide(COMMAND, [batch_id])
    return import_all(session, summary_of(session), [found])


def _received(session: Session, batch_id: str) -> Waiting:
    session.ledger.known_batch(session.target, batch_id)
    for found in received_batches(session, [batch_id]):
        return found
    raise NotPossible(f"{batch_id}: its source rows are not here: import its file once more, then try again")
