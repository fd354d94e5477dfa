"""The stage `loaded` by several steps: how many there are, and how a step joins a load that another step leads."""

from collections.abc import Callable, Sequence

from pipelines.dagster.handover import newest
from pipelines.feeds.files.catalog import Feed
from pipelines.runs.joining import join
from pipelines.runs.parts import workers_for
from pipelines.session.session import Session


def workers_of(session: Session, feed: Feed, batch_ids: Sequence[str]) -> int:
    """Return how many workers load parts of the largest batch at once; 1 if no batch is loaded in parts."""
    validated = [newest(session, feed, batch_id).validated for batch_id in batch_ids]
    rows = [each.accepted - each.skipped for each in validated if each]
    return max((workers_for(session.pace, each) for each in rows), default=1)


def join_all(session: Session, feed: Feed, batch_ids: Sequence[str], is_over: Callable[[], bool], number: int) -> int:
    """Load parts of the batches beside the holder of the target, as the worker with this number; return how many."""
    found = [newest(session, feed, batch_id) for batch_id in batch_ids]
    runs = [(each.run, each.validated) for each in found if each.run and each.validated]
    return join(session, runs, is_over, number)
