"""The runs that ended, as the ledger has them, whoever made them."""

from sqlalchemy import select

from pipelines.dagster.stages.outcome import FINISHED, NOTHING_SENT
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger

Ended = tuple[str, str, int]
"""A run that ended: target, batch, number of the run."""


def ended_runs(ledger: Ledger, since: str, most: int) -> list[tuple[str, Ended, str]]:
    """Return end time, run and feed of the runs that ended after `since`, in this order, at most so many."""
    run, batch = t.run.c, t.batch.c
    same = (batch.target == run.target) & (batch.batch_id == run.batch_id)
    query = select(run.finished_at, run.target, run.batch_id, run.run, batch.feed).join(t.batch, same)
    query = query.where(run.finished_at > since, run.state.in_((FINISHED, *NOTHING_SENT)))
    rows = ledger.read(query.order_by(run.finished_at, run.batch_id).limit(most))
    return [(at, (target, batch_id, number), feed) for at, target, batch_id, number, feed in rows]
