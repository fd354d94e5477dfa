"""The validate stage of a run, and its rejects in the ledger."""

from itertools import groupby
from operator import attrgetter

from pipelines.home import traces
from pipelines.ledger.rejects import open_in_batch
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
    opened = open_in_batch(session.ledger, session.target, run.received.batch_id) if run.before else ()
    before = {line: " ".join(each.reject_id for each in some) for line, some in groupby(opened, attrgetter("line"))}
    validated = validate_received(session, run.received, run.feed, run.folder, run.only, before)
    write_places(run.folder, validated.places)
    session.batches.keep(run.received.batch_id, f"{run.folder.name}/*")
    for rejects in rejects_left(session, run.feed, run.received.batch_id, validated):
        session.ledger.reject(session.target, run.feed.source, run.feed.resource, run.received.batch_id, rejects)
    session.batches.keep(run.received.batch_id, f"{run.folder.name}/*")
    return validated
