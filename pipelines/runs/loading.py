"""The load stage of a run, under the target's lease."""

from typing import Any

from pipelines.home import traces
from pipelines.home.progress import Progress
from pipelines.ledger.lease import Holder, Lease
from pipelines.ledger.rows import SoFar
from pipelines.ledger.states import OUTCOMES
from pipelines.loading.loaded import Loaded
from pipelines.loading.stage import Batch, load
from pipelines.runs.ending import run_counts
from pipelines.runs.parts import load_in_parts, workers_for
from pipelines.runs.run import ENDED, Run
from pipelines.session.session import Session
from pipelines.validation.outcome import Validated


def load_run(session: Session, run: Run, validated: Validated) -> Loaded:
    """The load stage, under the target's lease."""
    with traces.stage("load", run.received.batch_id, feed=run.feed.name, run=run.number):
        return _loaded(session, run, validated)


def _loaded(session: Session, run: Run, validated: Validated) -> Loaded:
    batch_id, progress = run.received.batch_id, session.progress
    resuming = run.before not in ENDED
    counts = run_counts(validated, Loaded())
    session.ledger.count_run(session.target, SoFar(batch_id, run.number, counts))
    batch = Batch(
        session.target,
        batch_id,
        run.feed,
        run.folder,
        resuming,
        session.pace,
        run.remap,
        run.number,
        counts,
        run.taken_back,
        session.connection.profile.file.balances,
    )
    with lease_of(session) as lease:
        if run.before in ENDED and validated.accepted > validated.skipped:
            session.ledger.reopen_batch(session.target, batch_id)
        progress.stage("load", batch_id, validated.accepted - validated.skipped)
        if (workers := workers_for(session.pace, validated.accepted - validated.skipped)) > 1:
            loaded = load_in_parts(session, batch, lease, workers)
        else:
            connection = session.connection
            loaded = load(batch, connection.client, connection.capabilities, session.ledger, lease, progress)
        progress.end(_in_words(loaded), "stopped" if loaded.unusable else "done")
    return loaded


def _in_words(loaded: Loaded) -> str:
    """Return the rows of a load by outcome."""
    counted = ((name, loaded.counts[name]) for name in (*OUTCOMES, "rejected"))
    said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counted if number)
    return said or ("nothing loaded" if loaded.unusable else "nothing to load")


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
