"""Publish the reports of the last sweep, and the ledger's present state."""

from fhir_service.paths import exists
from pipelines.corrections.retention import retain
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.reports.publication import Publication
from pipelines.reports.publish import publish
from pipelines.reports.sweep import Sweep, kept_sweep
from pipelines.session.session import Session
from pipelines.session.sweeping import sweep_target


def publish_kept(session: Session) -> tuple[Publication, Sweep]:
    """Publish the kept sweep, the first time a new one; then remove data whose retention has ended.

    Raises `PublicationError`.
    """
    swept = kept_sweep(session.home, session.target)
    if not (exists(swept.path) and swept.finished_at.timestamp()):  # the first sweep may have been killed at its end
        swept = sweep_target(session)
    settle_resubmitted(session.ledger, session.target)
    done = publish(session.home, session.ledger, swept)
    retain(session)
    return done, swept
