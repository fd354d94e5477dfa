"""Open rejects for want of an entry in a crosswalk: an import tries them again once the feed has changed."""

from collections.abc import Callable, Iterator
from functools import partial

from pipelines.corrections.sources import NO_ENTRY, OutOfReach, lines_by_batch, rejected_by, source_of
from pipelines.runs.batch import run_over
from pipelines.runs.run import Result
from pipelines.session.session import Session


def mended(session: Session) -> Iterator[Callable[[], Result]]:
    """Yield a run over the records of such rejects for each batch that no run has read by the feed as it is now."""
    for batch_id, lines in lines_by_batch(rejected_by(session.ledger, session.target, NO_ENTRY)).items():
        row = session.ledger.batch(session.target, batch_id)
        if row is None or row["state"] != "finished":
            continue
        try:
            received, feed = source_of(session.home, session.ledger, session.catalog, session.target, batch_id)
        except OutOfReach:
            continue
        if feed.hash not in {run["feed_hash"] for run in session.ledger.runs(session.target, batch_id)}:
            yield partial(run_over, session, received, feed, lines)
