"""The load stage of a run, under the target's lease."""

from pipelines.client.steps import step_for
from pipelines.home import traces
from pipelines.ledger.rows import SoFar
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun, LoadCounts
from pipelines.loading.stage import load
from pipelines.runs.counting import give_up_unread, run_counts
from pipelines.runs.parts import load_in_parts, workers_for
from pipelines.runs.run import ENDED, Run, refuse_ended
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult


def load_run(session: Session, run: Run, validated: ValidationResult) -> LoadCounts:
    """Run the load stage under the target's lease. Raises `HasEnded` before anything is loaded."""
    batch_id, progress, rows = run.received.batch_id, session.progress, validated.accepted - validated.skipped
    batch = batch_of(session, run, validated)
    with traces.stage("load", batch_id, feed=run.feed.name, run=run.number), session.lease() as lease:
        refuse_ended(session, run)
        session.ledger.count_run(session.target, SoFar(batch_id, run.number, batch.validated))
        bring_others(session, run)
        now = session.ledger.batch(session.target, batch_id)  # another run may have ended it while this one waited
        if now and now["state"] in ENDED and rows:
            session.ledger.reopen_batch(session.target, batch_id)
        progress.stage("load", batch_id, rows)
        connection, workers = session.connection, workers_for(session.pace, rows)
        step = step_for(connection.capabilities, run.feed.resource)
        this = Load(batch, connection.client, connection.capabilities, step, session.ledger, lease, progress)
        loaded = load_in_parts(session, this, workers) if workers > 1 else load(this)
        if run.only is None and not loaded.has_left(loaded.counts_with(batch.validated)):
            give_up_unread(session.ledger, lease, batch_id)
        progress.end(loaded.in_words(), "stopped" if loaded.unusable else "done")
    return loaded


def batch_of(session: Session, run: Run, validated: ValidationResult) -> BatchRun:
    """Return the batch that a run loads."""
    return BatchRun(
        session.target,
        run.received.batch_id,
        run.feed,
        run.folder,
        resuming=run.before not in ENDED,
        pace=session.pace,
        remap=run.remap,
        run=run.number,
        validated=run_counts(validated, LoadCounts()),
        taken_back=run.taken_back,
        balances=session.connection.client.profile.balances,
    )


def bring_others(session: Session, run: Run) -> None:
    """Bring accepted rows and places of other unfinished batches, which may hold lanes of this one."""
    if session.ledger.stored:
        batches = [row for row in session.ledger.batches(session.target) if row["resource_type"] == run.feed.resource]
        others = {row["batch_id"] for row in batches if row["state"] == "running"} - {run.received.batch_id}
        session.batches.bring(sorted(others), "run-*/accepted.parquet", "run-*/places.json")
