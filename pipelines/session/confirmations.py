"""Confirmations of a file that waits: a person's decision or, for copayments only, the feed file. Find the batches
without an end too, since a waiting batch becomes one of them once it is confirmed.
"""

from collections.abc import Iterable
from typing import Any

from pipelines.feeds.files.catalog import Catalog, Feed
from pipelines.ledger.ledger import Ledger

COPAYMENTS, NEW = "import --copayments", "import --new"
"""Commands that confirm that all payments of a file are copayments, and that all its records are new."""


def is_confirmed(ledger: Ledger, target: str, batch_id: str, command: str, feed: Feed) -> bool:
    """True if a person has confirmed this batch by the command, or the feed file says `copayments = "all"`."""
    by_feed = command == COPAYMENTS and feed.file.copayments == "all"
    return by_feed or batch_id in ledger.decided(command, target)


def waits(ledger: Ledger, target: str, batch_id: str, command: str) -> bool:
    """True if the last ended run of a batch sent nothing, and asks for this confirmation."""
    ended = [run for run in ledger.runs(target, batch_id) if run["finished_at"]]
    return bool(ended) and f"{command} {batch_id}" in (ended[-1]["message"] or "")


def confirmed_since(ledger: Ledger, catalog: Catalog, target: str) -> set[str]:
    """Return batches stopped because of copayments, whose feed file was changed since and now allows them."""
    found = set()
    for row in ledger.batches(target):
        feed = catalog.named(row["feed"])
        if row["state"] != "stopped" or not row["copayments"] or feed is None or feed.file.copayments != "all":
            continue
        ended = [run for run in ledger.runs(target, row["batch_id"]) if run["finished_at"]]
        if ended and ended[-1]["feed_hash"] != feed.hash:
            found.add(row["batch_id"])
    return found


def without_end(
    ledger: Ledger, target: str, names: Iterable[str], catalog: Catalog | None
) -> dict[str, dict[str, Any] | None]:
    """Return the home's batches without an end at a target: cut off, confirmed since, or not in the ledger yet.

    Each comes with its row in the ledger, None if the ledger does not have it. catalog: of feed files that may
    confirm.
    """
    known = {row["batch_id"] for row in ledger.batches()}
    rows = {row["batch_id"]: row for row in ledger.batches(target)}
    going_on = {name for name, row in rows.items() if row["state"] == "running"}
    going_on |= confirmed_since(ledger, catalog, target) if catalog else set()
    return {name: rows.get(name) for name in names if name in going_on or name not in known}
