"""The validate stage of a run, and its rejects in the ledger."""

from itertools import groupby
from operator import attrgetter

from pipelines.home import traces
from pipelines.ledger.rejects import open_in_batch
from pipelines.receiving.stage import check_copy, linked_copy
from pipelines.runs.manifest import write_questionnaires
from pipelines.runs.received import validate_received
from pipelines.runs.rejects_left import rejects_left
from pipelines.runs.run import Run
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult, write_places


def validate_run(session: Session, run: Run) -> ValidationResult:
    """Run the validate stage, and write its rejects to the ledger. Raises `Unreadable`, `TargetUnusable`."""
    feed, batch_id = run.feed, run.received.batch_id
    with (
        traces.stage("validate", batch_id, feed=feed.name, run=run.number),
        linked_copy(run.received, session.home) as received,
    ):
        check_copy(received)
        write_questionnaires(run.folder, session.snapshot_for(feed.resource).versions())
        opened = open_in_batch(session.ledger, session.target, batch_id) if run.before else ()
        before = {line: " ".join(each.reject_id for each in some) for line, some in groupby(opened, attrgetter("line"))}
        validated = validate_received(session, received, feed, run.folder, run.only, before)
        write_places(run.folder, validated.places)
        session.batches.keep(batch_id, f"{run.folder.name}/*")
        for rejects in rejects_left(session, feed, batch_id, validated):
            session.ledger.reject(session.target, feed.source, feed.resource, batch_id, rejects)
        session.batches.keep(batch_id, f"{run.folder.name}/*")
        return validated
