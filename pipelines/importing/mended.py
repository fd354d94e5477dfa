"""Open rejects for want of an entry in a crosswalk: an import tries them again once the feed has changed."""

from collections.abc import Iterator
from typing import NamedTuple

from pipelines.corrections.sources import NO_ENTRY, Lines, OutOfReach, lines_by_batch, rejected_by, source_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Received
from pipelines.runs.batch import run_over
from pipelines.runs.run import Result
from pipelines.session.session import Session


class Mended(NamedTuple):
    """Such rejects of one batch: the lines that their records begin on."""

    received: Received
    feed: Feed
    lines: Lines

    def try_again(self, session: Session) -> Result:
        """Run the batch over the records of these rejects."""
        return run_over(session, self.received, self.feed, self.lines)


def mended(session: Session) -> Iterator[Mended]:
    """Such rejects of batches that no run has read by the feed as it is now."""
    for batch_id, lines in lines_by_batch(rejected_by(session.ledger, session.target, NO_ENTRY)).items():
        row = session.ledger.batch(session.target, batch_id)
        if row is None or row["state"] != "finished":
            continue
        try:
            received, feed = source_of(session.home, session.ledger, session.catalog, session.target, batch_id)
        except OutOfReach:
            continue
        if feed.hash not in {run["feed_hash"] for run in session.ledger.runs(session.target, batch_id)}:
            yield Mended(received, feed, lines)
