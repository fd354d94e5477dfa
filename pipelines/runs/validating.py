"""The validate stage of a run, and its rejects in the ledger."""

from pipelines.home import traces
from pipelines.ledger.rejects import open_by_line
from pipelines.receiving.stage import check_copy
from pipelines.runs.manifest import write_questionnaires
from pipelines.runs.received import validate_received
from pipelines.runs.rejects_left import rejects_left
from pipelines.runs.run import Run
from pipelines.session.session import Session
from pipelines.validation.outcome import Validated
from pipelines.validation.places import write_places


def validate_run(session: Session, run: Run) -> Validated:
    """The validate stage, and its rejects in the ledger. Raises `Unreadable`, `TargetUnusable`."""
    with traces.stage("validate", run.received.batch_id, feed=run.feed.name, run=run.number):
        return _validated(session, run)


def _validated(session: Session, run: Run) -> Validated:
    check_copy(run.received)
    write_questionnaires(run.folder, session.snapshot_for(run.feed.resource).versions())
    before = open_by_line(session.ledger, session.target, run.received.batch_id) if run.before else {}
    validated = validate_received(session, run.received, run.feed, run.folder, run.only, before)
    write_places(run.folder, validated.places)
    session.ledger.batches_in(session.home).keep(run.received.batch_id, f"{run.folder.name}/*")
    for rejects in rejects_left(session, run.feed, validated):
        session.ledger.reject(session.target, run.feed.source, run.feed.resource, run.received.batch_id, rejects)
    session.ledger.batches_in(session.home).keep(run.received.batch_id, f"{run.folder.name}/*")
    return validated
