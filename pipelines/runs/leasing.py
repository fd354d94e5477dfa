"""The lease of a command's target."""

from typing import Any

from pipelines.home.progress import Progress
from pipelines.ledger.lease import Holder, Lease
from pipelines.session.session import Session


def lease_of(session: Session) -> Lease:
    """The target's lease, which says whom it waits for."""
    return session.ledger.lease(session.target, _teller(session.progress))


def _teller(progress: Progress) -> Any:
    told: set[str] = set()

    def waiting(holder: Holder) -> None:
        if holder.owner not in told:
            told.add(holder.owner)
            progress.say(f"waiting for process {holder.pid} on {holder.host}, which loads into this target")

    return waiting
