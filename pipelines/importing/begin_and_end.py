"""The beginning and the end that all imports share: their summary, and the publication after them."""

from collections import Counter
from collections.abc import Collection

from pipelines.client.replies import TargetUnusable
from pipelines.corrections.retention import retain
from pipelines.ledger.rejects import open_by_batch, settle_resubmitted
from pipelines.ledger.standing import undo_left_by_batch
from pipelines.ledger.unanswered_records import is_unanswered
from pipelines.reports.pseudonymous import Study
from pipelines.reports.publication import PublicationError
from pipelines.runs.summary import Summary
from pipelines.session.bundled import STORE
from pipelines.session.publishing import copy_out, publish_reports
from pipelines.session.session import Session


def close_import(session: Session, summary: Summary) -> None:
    """Finish an import: settle rejects, complete the summary, publish, and purge by age."""
    settle_resubmitted(session.ledger, session.target)
    told = {result.batch_id for result in summary.results}
    left = ((name, n) for (target, name), n in open_by_batch(session.ledger).items() if target == session.target)
    summary.open_elsewhere = sum(n for name, n in left if name not in told)
    summary.not_here = _without_end_elsewhere(session, told)
    summary.not_loaded = {
        name: str(row["file_name"] or "")
        for row in session.ledger.batches(session.target)
        if (name := str(row["batch_id"])) not in told and is_unanswered(session.ledger, session.batches, row)
    }
    begun = undo_left_by_batch(session.ledger).items()
    summary.undo_left = {name: n for (target, name), n in begun if target == session.target}
    publish_into(session, summary)
    retain(session)


def _without_end_elsewhere(session: Session, told: Collection[str | None]) -> dict[str, str]:
    """Return the unfinished batches whose files are not in this home, with their file names."""
    running = (row for row in session.ledger.batches(session.target) if row["state"] == "running")
    found = {str(row["batch_id"]): str(row["file_name"] or "") for row in running if row["batch_id"] not in told}
    return {name: file for name, file in found.items() if session.batches.received(name) is None}


def publish_only(session: Session, study: Study | None = None) -> Summary:
    """Sweep and publish. Raises `TargetUnusable`, and `LedgerError` for tables that are not as they must be.

    study: the study that pseudonymous tables are made for; None for the ordinary publication.
    """
    summary = summary_of(session)
    publish_into(session, summary, is_asked_for=True, study=study)
    if summary.error:
        raise TargetUnusable(summary.error)
    return summary


def summary_of(session: Session) -> Summary:
    store = session.home / STORE if session.connection.bundled else None
    left = Counter(row["target"] for row in session.ledger.batches() if row["state"] == "running")
    return Summary(session.connection.label, session.target, session.other_targets, store=store, left_there=left)


def publish_into(session: Session, summary: Summary, is_asked_for: bool = False, study: Study | None = None) -> None:
    """Publish the tables, and note it in the summary. is_asked_for: see `sweep_target`; study: see `publish_only`."""
    try:
        published = publish_reports(session, is_asked_for, study)
        summary.published, summary.tables, summary.remarks = published.path, published.rows, published.remarks
        if study is None:
            copy_out(session, published)
    except (TargetUnusable, PublicationError) as error:
        summary.error = str(error)
