"""What confirms a file of copayments alone: its feed file, or the decision of a person."""

from pipelines.feeds.files.catalog import Catalog, Feed
from pipelines.ledger.ledger import Ledger

COMMAND = "import --copayments"


def is_confirmed(ledger: Ledger, target: str, feed: Feed, batch_id: str) -> bool:
    """True if the feed file says that all of a file may be copayments, or a person has said so of this batch."""
    return feed.file.copayments == "all" or any(
        (each["command"], each["subject"]) == (COMMAND, batch_id) for each in ledger.decisions(target)
    )


def waits(ledger: Ledger, target: str, batch_id: str) -> bool:
    """True if the last run of a batch that ended sent nothing, and found copayments."""
    ended = [run for run in ledger.runs(target, batch_id) if run["finished_at"]]
    return bool(ended) and ended[-1]["state"] == "stopped" and bool(ended[-1]["copayments"])


def confirmed_since(ledger: Ledger, catalog: Catalog, target: str) -> set[str]:
    """Batches that were stopped with copayments, whose feed file was changed since and says that all may be."""
    found = set()
    for row in ledger.batches(target):
        feed = catalog.named(row["feed"])
        if row["state"] != "stopped" or not row["copayments"] or feed is None or feed.file.copayments != "all":
            continue
        ended = [run for run in ledger.runs(target, row["batch_id"]) if run["finished_at"]]
        if ended and ended[-1]["feed_hash"] != feed.hash:
            found.add(row["batch_id"])
    return found
