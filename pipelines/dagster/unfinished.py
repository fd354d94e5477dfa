"""The sensor that runs unfinished batches again: after a killed run, an unreachable target, or with rows in doubt.

It tries each batch a limited number of times, with growing pauses; the cursor keeps the number and the next time of the
tries. Progress of a batch resets them. A batch that only a person can settle stays unfinished.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import dagster as dg
from msgspec import Meta

from pipelines.client.pace import pace_of
from pipelines.dagster.names import DagsterNames, Job
from pipelines.dagster.requests import ask_for, batches_under_way, kept, result_of, ticking, understood
from pipelines.feeds.files.catalog import Catalog
from pipelines.ledger.addresses import known_as
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.lease import BEAT_SECONDS, Silence, holders
from pipelines.ledger.ledger import Ledger
from pipelines.session.confirmations import without_end
from pipelines.session.connections import target_now
from pipelines.session.ledger import ledger_of, open_ledger

SECONDS_BETWEEN_LOOKS = 60
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=12)
TIMES_LONGER = 3
TRIES = 8


def unfinished_sensor(
    home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence[Job]
) -> dg.SensorDefinition:
    ours, silence = DagsterNames.of(environ), Silence(most_between=inf)  # its looks are at least a minute apart
    pauses = f"{FIRST_PAUSE} to {LONGEST_PAUSE}"
    says = f"Requests runs for unfinished batches again, up to {TRIES} times with pauses of {pauses}."

    @ticking(ours, home, "unfinished", SECONDS_BETWEEN_LOOKS, says, jobs)
    def unfinished(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before = understood(context.cursor, dict[str, BatchTries], {})
        with ledger_of(home, environ) as ledger:
            if ledger is None:
                begun = begins_ledger(home, environ)
                return dg.SkipReason("The ledger was created." if begun else "There is no ledger yet.")
            now = ledger.clock()
            targets = {row["target"] for row in ledger.batches()} or {""}
            if not any(left_batches(ledger, home, each, catalog) for each in targets):
                return dg.SensorResult(cursor="{}", skip_reason="No batch is unfinished.")
            if are_loaders_at_work(ledger, silence):
                return dg.SkipReason("A loader is running.")
            target = target_now(home, environ)
            if target is None:
                return dg.SkipReason("The target does not answer; the tries are not counted.")
            names = {feed.name for feed in catalog.feeds}
            here = known_as(ledger, target)
            left = [each for each in left_batches(ledger, home, here, catalog) if each.feed in names]
        busy = batches_under_way(context.instance, ours, catalog.feeds)
        settling = timedelta(seconds=pace_of(environ).settling_seconds if any(each.is_doubtful for each in left) else 0)
        free = [each for each in left if each.batch_id not in busy]
        asked, after = due(free, before, now, max(settling, FIRST_PAUSE))
        still = {name: each for name, each in before.items() if name in busy}
        files = {each.batch_id: each.file_name for each in asked if each.file_name}
        wanted = [(feed, [each.batch_id for each in asked if each.feed == feed.name]) for feed in catalog.feeds]
        return result_of(
            (ask_for(context.instance, ours, *each, f"again {now.isoformat()}", files) for each in wanted),
            kept({**still, **after}),
            f"Unfinished batches: {len(left)}. None is due to run again yet.",
        )

    return unfinished


# -- batches without an end


@dataclass(frozen=True)
class UnfinishedBatch:
    """An unfinished batch.

    * progress: a text that differs after each step forward.
    * since: when its last run ended or, if it was killed, began.
    * is_doubtful: True if its last run left rows in doubt, which need the settling time.
    """

    batch_id: str
    feed: str
    progress: str
    since: datetime
    file_name: str | None = None
    is_doubtful: bool = False


def left_batches(ledger: Ledger, home: Path, target: str, catalog: Catalog | None = None) -> list[UnfinishedBatch]:
    """Return the unfinished batches of the target, oldest first, and received files that the ledger does not know.

    catalog: the feed files, which may have confirmed a stopped batch since.
    """
    batches, found = ledger.batches_in(home), []
    for name, row in without_end(ledger, target, batches.names(), catalog).items():
        if file := batches.received(name):
            at, feed = ledger.of_here(file.received_at), name.rpartition("-")[0]
            found.append(_left(ledger, row) if row else UnfinishedBatch(name, feed, "received", at, file.file_name))
    return sorted(found, key=lambda each: each.since)


def begins_ledger(home: Path, environ: Mapping[str, str]) -> bool:
    """Make the ledger of a home that has none, if files were received: their target has never answered so far."""
    if HomeBatches(home / "batches").without(()):
        open_ledger(home, environ).close()
        return True
    return False


def _left(ledger: Ledger, row: Mapping[str, Any]) -> UnfinishedBatch:
    rows = ledger.row_counts(row["target"], row["batch_id"])
    progress = ",".join(f"{state}={number}" for state, (number, _) in sorted(rows.items()))
    since, is_doubtful = datetime.fromisoformat(ledger.worked_on_at(row)), bool(row["in_doubt"])
    return UnfinishedBatch(row["batch_id"], row["feed"], progress, since, row["file_name"], is_doubtful)


def are_loaders_at_work(ledger: Ledger, silence: Silence) -> bool:
    """True if a loader has not been silent for 60 s. silence: kept from look to look."""
    loaders = holders(ledger.read)
    return bool(loaders - silence.look(loaders))


def somebody_loads(ledger: Ledger, pause: Callable[[float], object] = time.sleep) -> bool:
    """True if a loader gives a sign of life within two beats. Waits that long; for a single look, such as a display."""
    silent, looks = holders(ledger.read), int(2 * BEAT_SECONDS)
    while silent and looks:
        pause(1.0)
        if holders(ledger.read) - silent:
            return True
        looks -= 1
    return False


# -- their tries


class BatchTries(NamedTuple):
    """The tries of a batch since it last made progress, and when the next one is due."""

    progress: str
    tries: int
    due: Annotated[datetime, Meta(tz=True)]


def pause(tries: int, first: timedelta = FIRST_PAUSE) -> timedelta:
    """Return the pause before a try; the first try has number 0. first: the shortest pause."""
    return max(first, min(LONGEST_PAUSE, FIRST_PAUSE * int(TIMES_LONGER ** min(tries, TRIES))))


def due(
    left: Sequence[UnfinishedBatch], before: Mapping[str, BatchTries], now: datetime, first: timedelta
) -> tuple[list[UnfinishedBatch], dict[str, BatchTries]]:
    """Return the batches to run now, and the tries to remember. first: the shortest pause."""
    asked, after = [], {}
    for each in left:
        known = before.get(each.batch_id)
        if known is None or known.progress != each.progress:
            known = BatchTries(each.progress, 0, each.since + pause(0, first))
        # A time from a clock that was ahead does not delay a try for longer than its pause.
        known = known._replace(due=min(known.due, now + pause(known.tries, first)))
        if known.tries < TRIES and known.due <= now:
            asked.append(each)
            known = BatchTries(each.progress, known.tries + 1, now + pause(known.tries + 1, first))
        after[each.batch_id] = known
    return asked, after
