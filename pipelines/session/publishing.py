"""Read the contents of the published tables from a session's target, and publish them."""

from pathlib import Path

from pipelines.client.replies import TargetUnusable
from pipelines.home.stores import StoreUnusable, store_at
from pipelines.reports.bulk import publish_bulk
from pipelines.reports.copying import copy_publication
from pipelines.reports.pseudonymous import Study
from pipelines.reports.publication import Publication
from pipelines.reports.publish import publish
from pipelines.reports.publish_pseudonymous import publish_pseudonymous
from pipelines.session.session import Session
from pipelines.session.sweeping import sweep_for_bulk, sweep_target


def publish_reports(session: Session, is_asked_for: bool, study: Study | None) -> Publication:
    """Sweep the reports and publish all tables in one step. Raises `TargetUnusable`, `PublicationError`.

    is_asked_for: see `sweep_target`; only if it is True are tasks and payments read for views. study: the study that
    pseudonymous tables are made for; None for the ordinary publication.
    """
    session.progress.stage("publish", "reports")
    swept = sweep_target(session, is_asked_for, with_views=is_asked_for)
    if study:
        published = publish_pseudonymous(session.home, session.ledger, swept, study)
    else:
        published = publish(session.home, session.ledger, swept)
    session.ledger.copy_journal()
    session.progress.end()
    return published


def copy_out(session: Session, published: Publication) -> None:
    """Copy a publication to the store, if there is one. Raises `TargetUnusable`; the last good copy then stays."""
    if session.copies_to is None:
        return
    session.progress.stage("copy", "tables")
    try:
        copy_publication(store_at(session.copies_to), session.home, published)
    except StoreUnusable as error:
        raise TargetUnusable(f"the tables are published here, and were not copied: {error}") from None
    session.progress.end()


def publish_in_bulk(session: Session, address: str) -> Path:
    """Read the resources that the target shows, and publish them in bulk; return the manifest.

    Raises `TargetUnusable` and `PublicationError` if something cannot be read or written: the earlier publication
    stays.

    address: of the folder, for its readers.
    """
    session.progress.stage("publish", "resources")
    swept, types = sweep_for_bulk(session)
    manifest = publish_bulk(session.home, session.target, address, swept.started_at, types)
    session.progress.end()
    return manifest
