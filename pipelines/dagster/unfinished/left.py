"""Batches without an end: a killed run, an unreachable target, or rows in doubt."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.feeds.files.catalog import Catalog
from pipelines.ledger.kept import Batches
from pipelines.ledger.lease import BEAT_SECONDS, Silence, holders
from pipelines.ledger.ledger import Ledger
from pipelines.session.confirmed import confirmed_since
from pipelines.session.ledger import open_ledger


@dataclass(frozen=True)
class Left:
    """An unfinished batch.

    progress: text that differs after each step forward. since: when its last run ended or, if it was killed, began.
    """

    batch_id: str
    feed: str
    progress: str
    since: datetime
    file_name: str | None = None


def left_batches(ledger: Ledger, home: Path, target: str, confirmed: Collection[str] = ()) -> list[Left]:
    """Return the unfinished batches of the target, oldest first, and received files that the ledger does not know.

    confirmed: stopped batches that may go on, since what they waited for was given.
    """
    here, known = ledger.batches(target), {row["batch_id"] for row in ledger.batches()}
    batches = ledger.batches_in(home)
    going_on = [row for row in here if row["state"] == "running" or row["in_doubt"] or row["batch_id"] in confirmed]
    found = [_left(ledger, row) for row in going_on]
    found += [
        Left(r.batch_id, r.batch_id.rpartition("-")[0], "received", ledger.of_here(r.received_at), r.file_name)
        for r in batches.without(known)
    ]
    return sorted((each for each in found if batches.received(each.batch_id)), key=lambda each: each.since)


def begins_ledger(home: Path, environ: Mapping[str, str]) -> bool:
    """Make the ledger of a home that has none, if files were received: their target has never answered so far."""
    if Batches(home / "batches").without(()):
        open_ledger(home, environ).close()
        return True
    return False


def _left(ledger: Ledger, row: Mapping[str, Any]) -> Left:
    runs = ledger.runs(row["target"], row["batch_id"])
    last = max((str(run["finished_at"] or run["started_at"]) for run in runs), default=row["received_at"])
    rows = ledger.row_counts(row["target"], row["batch_id"])
    progress = ",".join(f"{state}={number}" for state, (number, _) in sorted(rows.items()))
    return Left(row["batch_id"], row["feed"], progress, datetime.fromisoformat(last), row["file_name"])


def anything_left(ledger: Ledger, home: Path, catalog: Catalog) -> bool:
    rows = ledger.batches()
    if any(confirmed_since(ledger, catalog, target) for target in {row["target"] for row in rows}):
        return True
    if any(row["state"] == "running" or row["in_doubt"] for row in rows):
        return True
    return bool(ledger.batches_in(home).without({row["batch_id"] for row in rows}))


def are_loaders_at_work(ledger: Ledger, silence: Silence) -> bool:
    """True if a loader has not been seen without a sign of life for 60 s. silence: kept from look to look."""
    loaders = holders(ledger.read)
    return bool(loaders - silence.look(loaders))


def somebody_loads(ledger: Ledger, pause: Callable[[float], object] = time.sleep) -> bool:
    """True if a loader gives a sign of life while this process looks on, for two beats: for show, and for one look."""
    silent, looks = holders(ledger.read), int(2 * BEAT_SECONDS)
    while silent and looks:
        pause(1.0)
        if holders(ledger.read) - silent:
            return True
        looks -= 1
    return False
