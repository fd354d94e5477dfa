"""The lease of a command's target."""

from pipelines.ledger.lease import Holder, Lease
from pipelines.session.session import Session


def lease_of(session: Session) -> Lease:
    """The target's lease, which says once whom it waits for."""
    told = set[str]()

    def waiting(holder: Holder) -> None:
        if holder.owner not in told:
            told.add(holder.owner)
            session.progress.say(f"waiting for process {holder.pid} on {holder.host}, which loads into this target")

    return session.ledger.lease(session.target, waiting)
