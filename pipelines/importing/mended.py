"""Open rejects for want of an entry in a crosswalk: an import tries them again once the feed has changed."""

from collections.abc import Iterator
from typing import NamedTuple

from pipelines.corrections.rejects import Lines, OutOfReach, lines_by_batch, source_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Received
from pipelines.ledger.rejects import OPEN, reasons_of, reject_places
from pipelines.session.session import Session

NO_ENTRY = "FEED-FILE-06"


class Mended(NamedTuple):
    """Such rejects of one batch: the lines that their records begin on."""

    received: Received
    feed: Feed
    lines: Lines


def mended(session: Session) -> Iterator[Mended]:
    """Such rejects of batches that no run has read by the feed as it is now."""
    places = reject_places(session.ledger, session.target, None, OPEN)
    reasons = reasons_of(session.ledger, [each.reject_id for each in places])
    wanted = [p for p in places if any(each.rule_id == NO_ENTRY for each in reasons.get(p.reject_id, ()))]
    for batch_id, lines in lines_by_batch(wanted).items():
        row = session.ledger.batch(session.target, batch_id)
        if row is None or row["state"] != "finished":
            continue
        try:
            received, feed = source_of(session.home, session.ledger, session.catalog, session.target, batch_id)
        except OutOfReach:
            continue
        if feed.hash not in {run["feed_hash"] for run in session.ledger.runs(session.target, batch_id)}:
            yield Mended(received, feed, lines)
