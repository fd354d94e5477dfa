"""The sensor that runs unfinished batches again: after a killed run, an unreachable target, or with rows in doubt.

It tries each batch a limited number of times, with growing pauses. Progress of a batch resets its tries and pauses.
A batch that only a person can settle stays unfinished.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from sqlalchemy import select

from pipelines.client.pace import pace_of
from pipelines.dagster.cursors import understood
from pipelines.dagster.names import job_of
from pipelines.dagster.requests import ask_for, batches_under_way
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.batch import received_before
from pipelines.home.ticks import note_tick
from pipelines.ledger import tables as t
from pipelines.ledger.addresses import known_as
from pipelines.ledger.lease import SILENCE
from pipelines.ledger.ledger import Ledger, utc_text
from pipelines.session.confirmed import confirmed_since
from pipelines.session.connections import target_now
from pipelines.session.opening import has_ledger, open_ledger

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS_BETWEEN_LOOKS = 60
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=12)
TIMES_LONGER = 3
TRIES = 8


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


@dataclass(frozen=True)
class Try:
    """The tries of a batch since it last made progress, and when the next one is due."""

    progress: str
    tries: int
    due: datetime


def pause(tries: int, first: timedelta = FIRST_PAUSE) -> timedelta:
    """Return the pause before a try; the first try has number 0. first: the shortest pause."""
    return max(first, min(LONGEST_PAUSE, FIRST_PAUSE * int(TIMES_LONGER ** min(tries, TRIES))))


def left_batches(ledger: Ledger, home: Path, target: str, confirmed: Collection[str] = ()) -> list[Left]:
    """Return the unfinished batches of the target, oldest first, and received files that the ledger does not know.

    confirmed: stopped batches that may go on, since what they waited for was given.
    """
    here, known = ledger.batches(target), {row["batch_id"] for row in ledger.batches()}
    folder = home / "batches"
    going_on = [row for row in here if row["state"] == "running" or row["in_doubt"] or row["batch_id"] in confirmed]
    found = [_left(ledger, row) for row in going_on]
    forgotten = (received_before(path) for path in _folders(home) if path.name not in known)
    found += [
        Left(r.batch_id, r.batch_id.rpartition("-")[0], "received", r.received_at, r.file_name) for r in forgotten if r
    ]
    return sorted((each for each in found if received_before(folder / each.batch_id)), key=lambda each: each.since)


def _folders(home: Path) -> list[Path]:
    folder = home / "batches"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _left(ledger: Ledger, row: Mapping[str, Any]) -> Left:
    runs = ledger.runs(row["target"], row["batch_id"])
    last = max((str(run["finished_at"] or run["started_at"]) for run in runs), default=row["received_at"])
    rows = ledger.row_counts(row["target"], row["batch_id"])
    progress = ",".join(f"{state}={number}" for state, (number, _) in sorted(rows.items()))
    return Left(row["batch_id"], row["feed"], progress, datetime.fromisoformat(last), row["file_name"])


def due(
    left: Sequence[Left], before: Mapping[str, Try], now: datetime, first: timedelta
) -> tuple[list[Left], dict[str, Try]]:
    """Return the batches to run now, and the tries to remember. first: the shortest pause."""
    asked, after = [], {}
    for each in left:
        known = before.get(each.batch_id)
        if known is None or known.progress != each.progress:
            known = Try(each.progress, 0, each.since + pause(0, first))
        if known.tries < TRIES and known.due <= now:
            asked.append(each)
            known = Try(each.progress, known.tries + 1, now + pause(known.tries + 1, first))
        after[each.batch_id] = known
    return asked, after


def to_cursor(tries: Mapping[str, Try]) -> str:
    return json.dumps({name: [each.progress, each.tries, each.due.isoformat()] for name, each in tries.items()})


def from_cursor(cursor: str | None) -> dict[str, Try]:
    return understood(cursor, _tries, {})


def _tries(said: Any) -> dict[str, Try]:
    return {
        name: Try(str(progress), int(tries), datetime.fromisoformat(at).astimezone(UTC))
        for name, (progress, tries, at) in said.items()
    }


def unfinished_sensor(
    home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence["UnresolvedAssetJobDefinition"]
) -> dg.SensorDefinition:
    @dg.sensor(
        name="unfinished",
        jobs=jobs,
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Asks again for batches that have no end, up to {TRIES} times with pauses of {FIRST_PAUSE} to "
        f"{LONGEST_PAUSE}.",
    )
    def unfinished(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        note_tick(home, "unfinished")
        if not has_ledger(home, environ):
            return dg.SkipReason("There is no ledger yet.")
        now, before = datetime.now(UTC), from_cursor(context.cursor)
        with closing(open_ledger(home, environ)) as ledger:
            if not _anything_left(ledger, home, catalog):
                return dg.SensorResult(cursor="{}", skip_reason="Every batch has an end.")
            if somebody_loads(ledger, now):
                return dg.SkipReason("A loader is at work.")
            target = target_now(home, environ)
            if target is None:
                return dg.SkipReason("The target does not answer; the tries are not counted.")
            names = {feed.name for feed in catalog.feeds}
            here = known_as(ledger, target)
            confirmed = confirmed_since(ledger, catalog, here)
            left = [each for each in left_batches(ledger, home, here, confirmed) if each.feed in names]
        busy = batches_under_way(context.instance, [job_of(feed) for feed in catalog.feeds])
        first = timedelta(seconds=pace_of(environ).settling_seconds)
        asked, after = due([each for each in left if each.batch_id not in busy], before, now, max(first, FIRST_PAUSE))
        kept = {name: each for name, each in before.items() if name in busy}
        files = {each.batch_id: each.file_name for each in asked if each.file_name}
        requests, additions = [], []
        for feed in catalog.feeds:
            wanted = [each.batch_id for each in asked if each.feed == feed.name]
            runs, more = ask_for(context.instance, feed, wanted, f"again {now.isoformat()}", files)
            requests += runs
            additions += more
        return dg.SensorResult(
            run_requests=requests,
            dynamic_partitions_requests=additions,
            cursor=to_cursor({**kept, **after}),
            skip_reason=None if requests else f"{len(left)} batches have no end; none is due yet.",
        )

    return unfinished


def _anything_left(ledger: Ledger, home: Path, catalog: Catalog) -> bool:
    rows = ledger.batches()
    if any(confirmed_since(ledger, catalog, target) for target in {row["target"] for row in rows}):
        return True
    known = {row["batch_id"] for row in rows}
    forgotten = (path for path in _folders(home) if path.name not in known)
    return any(row["state"] == "running" or row["in_doubt"] for row in rows) or any(map(received_before, forgotten))


def somebody_loads(ledger: Ledger, now: datetime) -> bool:
    """True if a loader has given a sign of life."""
    with ledger.engine.connect() as connection:
        beats = connection.execute(select(t.lease.c.heartbeat_at)).scalars()
        return any(beat > utc_text(now - SILENCE) for beat in beats)
