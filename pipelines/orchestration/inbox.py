"""The sensor of the inbox: files that have stopped growing become partitions, each feed's go into one run, in order.

The cursor keeps what was seen of each file that lies there: a file is taken up when two looks in a row saw the same.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from pipelines.answers import feed_of
from pipelines.feeds.catalog import Catalog, Feed, FeedError, is_control
from pipelines.ledger import Ledger
from pipelines.orchestration.requests import ask_for
from pipelines.orchestration.stages import batch_id_of
from pipelines.session import has_ledger, open_ledger

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS_BETWEEN_LOOKS = 30
SECONDS_OF_HASHING = 20.0


@dataclass(frozen=True)
class Seen:
    """A file as a look saw it. changed: nanoseconds of its change and modification; batch: once a run was asked for."""

    size: int
    changed: tuple[int, int]
    batch: str | None = None

    def same(self, other: "Seen | None") -> bool:
        return other is not None and (self.size, self.changed) == (other.size, other.changed)


@dataclass(frozen=True)
class Look:
    """What one look at the inbox came to: the next cursor, and the files to import now, by feed, in order."""

    seen: Mapping[str, Seen]
    ready: Mapping[str, Mapping[str, Seen]]
    growing: int = 0
    unmatched: tuple[str, ...] = ()


def look(
    inbox: Path,
    catalog: Catalog,
    before: Mapping[str, Seen],
    seconds: float = SECONDS_OF_HASHING,
    ledger: Ledger | None = None,
) -> Look:
    """Compares the inbox with the look before. Hashing ends after `seconds`; what is left is taken up by the next.

    With a ledger, files that answer its rejects go to their feed whatever their name.
    """
    until = time.monotonic() + seconds
    seen: dict[str, Seen] = {}
    ready: dict[str, dict[str, Seen]] = {}
    growing, unmatched = 0, []
    for path, now in _files(inbox):
        feed = _feed(path, catalog, ledger)
        if feed is None:
            unmatched.append(path.name)
            continue
        earlier = before.get(path.name)
        if earlier and now.same(earlier) and earlier.batch:
            seen[path.name] = earlier
        elif not now.same(earlier) or time.monotonic() > until:
            seen[path.name], growing = now, growing + 1
        elif batch_id := _hashed(feed, path, now):
            seen[path.name] = ready.setdefault(feed.name, {})[path.name] = replace(now, batch=batch_id)
        else:
            growing += 1
    return Look(seen, ready, growing, tuple(unmatched))


def _files(inbox: Path) -> Iterator[tuple[Path, Seen]]:
    """The files of the inbox in the order of their names; those that begin with a dot are still being written."""
    with os.scandir(inbox) as entries:
        named = sorted(entry.path for entry in entries if entry.is_file() and not entry.name.startswith("."))
    for path in map(Path, named):
        if not is_control(path.name):
            try:
                about = path.stat()
            except OSError:
                continue
            yield path, Seen(about.st_size, (about.st_ctime_ns, about.st_mtime_ns))


def _feed(path: Path, catalog: Catalog, ledger: Ledger | None) -> Feed | None:
    try:
        return feed_of(path, catalog, ledger)
    except FeedError:
        return None


def _hashed(feed: Feed, path: Path, now: Seen) -> str | None:
    """The batch's name; None when the file changed or went while it was read."""
    try:
        batch_id, about = batch_id_of(feed, path), path.stat()
    except OSError:
        return None
    return batch_id if (about.st_size, about.st_mtime_ns) == (now.size, now.changed[1]) else None


def to_cursor(seen: Mapping[str, Seen]) -> str:
    return json.dumps({name: [each.size, *each.changed, each.batch] for name, each in seen.items()})


def from_cursor(cursor: str | None) -> dict[str, Seen]:
    said = json.loads(cursor or "{}")
    return {name: Seen(size, (changed, modified), batch) for name, (size, changed, modified, batch) in said.items()}


def inbox_sensor(home: Path, catalog: Catalog, jobs: Sequence["UnresolvedAssetJobDefinition"]) -> dg.SensorDefinition:
    @dg.sensor(
        name="inbox",
        jobs=jobs,
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Imports what is put into {home / 'inbox'}, once it has stopped growing.",
    )
    def inbox(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not (home / "inbox").is_dir():
            return dg.SkipReason("There is no inbox yet.")
        with _ledger(home) as ledger:
            found = look(home / "inbox", catalog, from_cursor(context.cursor), ledger=ledger)
        for name in found.unmatched:
            context.log.warning("no feed takes a file of the name %s, or two do", name)
        requests, additions = [], []
        for feed in catalog.feeds:
            files = found.ready.get(feed.name, {})
            wanted = [seen.batch for seen in files.values() if seen.batch]
            runs, new = ask_for(context.instance, feed, wanted, _run_key(files))
            requests += runs
            additions += new
        return dg.SensorResult(
            run_requests=requests,
            dynamic_partitions_requests=additions,
            cursor=to_cursor(found.seen),
            skip_reason=None if requests else _nothing(found),
        )

    return inbox


@contextmanager
def _ledger(home: Path) -> Iterator[Ledger | None]:
    """The ledger, where there is one."""
    if not has_ledger(home, os.environ):
        yield None
        return
    with closing(open_ledger(home, os.environ)) as ledger:
        yield ledger


def _run_key(files: Mapping[str, Seen]) -> str:
    """Differs whenever a file came anew, be it the same file."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]


def _nothing(found: Look) -> str:
    waiting = sum(seen.batch is not None for seen in found.seen.values())
    return f"Nothing new: {found.growing} files are not yet still, {waiting} are in runs that were asked for."
