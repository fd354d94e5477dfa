"""The sensor of the inbox: files that have stopped growing become partitions; files of one feed share a run, in order.

The cursor keeps a mark of each file: a short hash of name, size and times. A file is imported once it has not changed
for some seconds, or two looks in a row saw the same mark. If it is still there afterwards, and no run is about to take
it, the sensor requests it again with growing pauses. Waiting reference data is loaded first.
"""

import hashlib
import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import dagster as dg

from pipelines.dagster import reference
from pipelines.dagster.cursors import understood
from pipelines.dagster.names import job_of
from pipelines.dagster.requests import Additions, ask_for, batches_under_way
from pipelines.dagster.stages import batch_id_of
from pipelines.dagster.unfinished import pause
from pipelines.feeds.files.catalog import Catalog, Feed, FeedError
from pipelines.home.batch import is_control, shown
from pipelines.home.inbox import LEADS_OUT, Inbox
from pipelines.home.ticks import note_tick
from pipelines.ledger.ledger import Ledger
from pipelines.receiving.written import is_written
from pipelines.session.answers import feed_of
from pipelines.session.opening import has_ledger, open_ledger

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS_BETWEEN_LOOKS = 9
"""Dagster looks every 5 seconds and a little what is due: this makes it every other time, 10 seconds apart."""
SECONDS_OF_HASHING = 20.0
SECONDS_FOR_ONE_FILE = 5.0
FILES_HASHED_AT_ONCE = 2
FILES_A_LOOK = 1_000
SECONDS_BEFORE_ANOTHER_LOAD = 900
BYTES_OF_MARK = 6
NAMES_SAID = 20
LAIN_TOO_LONG = timedelta(hours=1)
QUIET = timedelta(seconds=10)
"""A file that has not changed for so long has stopped growing: one look is enough."""


@dataclass(frozen=True, order=True)
class Asked:
    """How often a file was requested, and when it is due again if it is still there, in seconds since 1970."""

    tries: int = 0
    due: int = 0


@dataclass(frozen=True)
class Seen:
    """The marks of the files at the last look, which the cursor keeps.

    still: to be compared at the next look. asked: requested. left: no feed takes them, or the link is refused.
    feeds: a hash of the feeds and settings that decided what is left.
    """

    still: frozenset[str] = frozenset()
    asked: Mapping[str, Asked] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    feeds: str = ""


@dataclass
class Look:
    """The result of one look at the inbox: the marks as in `Seen`, and the names of files to import or to warn about.

    ready: batches to import now, by feed and by the mark of their file. refused: links that lead out of the inbox.
    unmatched: files that no feed takes. unreadable: the reason by file name; these files are tried again.
    """

    still: set[str] = field(default_factory=set)
    asked: dict[str, Asked] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    ready: dict[str, dict[str, str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    feeds: str = ""

    @property
    def number(self) -> int:
        """Return the number of files to import now."""
        return sum(map(len, self.ready.values()))

    @property
    def seen(self) -> Seen:
        """Return the marks to compare with at the next look."""
        return Seen(frozenset(self.still), dict(self.asked), frozenset(self.left), self.feeds)


class Hashes:
    """Hashes of files, computed in threads: the hash of a large file may be ready only at a later look."""

    def __init__(self, patience: float = SECONDS_FOR_ONE_FILE) -> None:
        self._patience = patience
        self._workers = ThreadPoolExecutor(FILES_HASHED_AT_ONCE, "hash")
        self._under_way: dict[tuple[str, str], Future[str]] = {}

    def batch_id(self, feed: Feed, path: Path, mark: str) -> str | None:
        """Return the id of the file's batch, or None while its hash is not ready. Raises `OSError`."""
        key = (feed.name, mark)
        if key not in self._under_way:
            self._under_way[key] = self._workers.submit(batch_id_of, feed, path)
        hashing = self._under_way[key]
        wait([hashing], self._patience)
        if not hashing.done():
            return None
        del self._under_way[key]
        return hashing.result()


@dataclass(frozen=True)
class Surroundings:
    """Everything beside the files that a look depends on.

    ledger: if there is one, a file of corrected rejects goes to their feed, whatever its name.
    under_way: returns the batches of runs that have not ended; called only when needed.
    inbox: decides which links may be followed.
    """

    catalog: Catalog
    now: datetime
    ledger: Ledger | None = None
    under_way: Callable[[], set[str]] = set
    hashes: Hashes = field(default_factory=Hashes)
    inbox: Inbox | None = None


def look(inbox: Path, before: Seen, by: Surroundings, seconds: float = SECONDS_OF_HASHING) -> Look:
    """Compare the inbox with the look before.

    Files that remain after `seconds` of hashing, or after `FILES_A_LOOK` files, are left to the next look.
    """
    until, found = time.monotonic() + seconds, Look(feeds=_mark(_settled_by(by)))
    left = before.left if before.feeds == found.feeds else frozenset[str]()
    for path, about in _files(inbox):
        mark = mark_of(path, about)
        known = before.asked.get(mark)
        if mark in left:
            found.left.add(mark)
        elif known is None and mark not in before.still and not _is_quiet(about, by.now):
            found.still.add(mark)
        elif (known and known.due > by.now.timestamp()) or time.monotonic() > until or found.number >= FILES_A_LOOK:
            _not_now(mark, known, found)
        else:
            _take_up(path, mark, known, by, found)
    return found


def _is_quiet(about: os.stat_result, now: datetime) -> bool:
    """True if a file has not changed for some seconds. A time that lies ahead, as of another machine, is no proof."""
    return now.timestamp() - max(about.st_mtime, about.st_ctime) >= QUIET.total_seconds()


def _settled_by(by: Surroundings) -> Iterator[str]:
    """Yield the settings that decide which files are left. When they change, those files are looked at again."""
    yield from (each.hash for each in by.catalog.feeds)
    yield from map(str, by.inbox.links if by.inbox else ())


def _not_now(mark: str, known: Asked | None, found: Look) -> None:
    """Leave a file to the next look. known: its earlier requests, if any."""
    if known:
        found.asked[mark] = known
    else:
        found.still.add(mark)


def _take_up(path: Path, mark: str, known: Asked | None, by: Surroundings, found: Look) -> None:
    """Request the batch of a file that has stopped growing, or note why it is left."""
    if by.inbox and by.inbox.refuses(path):
        found.left.add(mark)
        found.refused.append(path.name)
        return
    feed = _feed(path, by.catalog, by.ledger)
    if feed is None:
        found.left.add(mark)
        found.unmatched.append(path.name)
        return
    try:
        batch_id, written = by.hashes.batch_id(feed, path, mark), is_written(path)
        after = mark_of(path, path.stat())
    except FileNotFoundError:
        return
    except OSError as error:
        _not_now(mark, known, found)
        found.unreadable[path.name] = error.strerror or type(error).__name__
        return
    if after != mark:
        found.still.add(after)
    elif written or batch_id is None:
        _not_now(mark, known, found)
    else:
        found.names[batch_id] = path.name
        _ask(feed, mark, batch_id, known or Asked(), by, found)


def _ask(feed: Feed, mark: str, batch_id: str, known: Asked, by: Surroundings, found: Look) -> None:
    """Request the batch now, unless a run of it has not ended. Note when the file is due again."""
    busy = batch_id in by.under_way()
    tries = known.tries if busy else known.tries + 1
    found.asked[mark] = Asked(tries, int((by.now + pause(max(0, tries - 1))).timestamp()))
    if not busy:
        found.ready.setdefault(feed.name, {})[mark] = batch_id


def lain_too_long(inbox: Path, now: datetime) -> dict[str, datetime]:
    """Return since when files are in the inbox, for those of an hour or more, whether or not a feed takes them."""
    return lain_for(inbox, now, LAIN_TOO_LONG)


def lain_for(inbox: Path, now: datetime, least: timedelta) -> dict[str, datetime]:
    """Return since when files are in the inbox, for those that are there for `least` or longer."""
    if not inbox.is_dir():
        return {}
    came = {path.name: datetime.fromtimestamp(about.st_ctime, UTC) for path, about in _files(inbox)}
    return {name: at for name, at in came.items() if at <= now - least}


def mark_of(path: Path, about: os.stat_result) -> str:
    """Return the mark of a file: a hash of name, size, and times of change and modification.

    The time of change (ctime) shows a replaced file even if its modification time was set back.
    """
    return _mark([path.name, str(about.st_size), str(about.st_ctime_ns), str(about.st_mtime_ns)])


def _mark(parts: Iterator[str] | Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()
    return urlsafe_b64encode(digest[:BYTES_OF_MARK]).decode()


def _files(inbox: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of the inbox by name. Names that begin with a dot are left out: they are still being written."""
    with os.scandir(inbox) as entries:
        named = sorted(entry.path for entry in entries if not entry.name.startswith("."))
    for path in map(Path, named):
        if not is_control(path.name):
            try:
                about = path.stat()
            except OSError:  # removed since, or a broken link
                continue
            if S_ISREG(about.st_mode):
                yield path, about


def _feed(path: Path, catalog: Catalog, ledger: Ledger | None) -> Feed | None:
    """Return the file's feed, or None if no feed takes it or several do."""
    try:
        return feed_of(path, catalog, ledger)
    except FeedError:
        return None


def to_cursor(seen: Seen) -> str:
    """Return the cursor: marks joined to one text, grouped by tries and due time to keep it short."""
    alike: dict[Asked, list[str]] = {}
    for mark, each in seen.asked.items():
        alike.setdefault(each, []).append(mark)
    asked = [[each.tries, each.due, "".join(sorted(marks))] for each, marks in sorted(alike.items())]
    still, left = ("".join(sorted(marks)) for marks in (seen.still, seen.left))
    return json.dumps({"still": still, "asked": asked, "left": left, "feeds": seen.feeds})


def from_cursor(cursor: str | None) -> Seen:
    return understood(cursor, _seen, Seen())


def _seen(said: Any) -> Seen:
    still, left = (_marks(said.get(name, "")) for name in ("still", "left"))
    asked = said.get("asked", [])
    if isinstance(asked, str):  # an older version requested each file once, and kept no tries
        asked = [[1, 0, asked]]
    by_mark = {mark: Asked(int(tries), int(due)) for tries, due, marks in asked for mark in _marks(marks)}
    return Seen(still, by_mark, left, str(said.get("feeds", "")))


def _marks(text: str) -> frozenset[str]:
    letters = BYTES_OF_MARK * 4 // 3
    return frozenset(text[at : at + letters] for at in range(0, len(text), letters))


def inbox_sensor(
    home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence["UnresolvedAssetJobDefinition"]
) -> dg.SensorDefinition:
    hashes, links = Hashes(), Inbox.of(home, environ)

    @dg.sensor(
        name="inbox",
        jobs=jobs,
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Imports what is put into {home / 'inbox'}, once it has stopped growing, and asks again, with "
        f"growing pauses, for what stays there. Loads what is put into {home / reference.GROUP} before that, where the "
        "target is the bundled service.",
    )
    def inbox(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        note_tick(home, "inbox")
        before = from_cursor(context.cursor)
        waiting = reference.looks_new(home) if reference.is_bundled(environ) else []
        if waiting:
            return _reference_first(waiting, before, int(time.time() // SECONDS_BEFORE_ANOTHER_LOAD))
        if not (home / "inbox").is_dir():
            return dg.SkipReason("There is no inbox yet.")
        if next(_files(home / "inbox"), None) is None:  # nothing is opened for an empty inbox
            return dg.SensorResult(cursor=to_cursor(Seen()), skip_reason="The inbox is empty.")
        now, names = datetime.now(UTC), [job_of(feed) for feed in catalog.feeds]
        under_way = cache(lambda: batches_under_way(context.instance, names))
        with _ledger(home, environ) as ledger:
            found = look(home / "inbox", before, Surroundings(catalog, now, ledger, under_way, hashes, links))
        for name in found.unmatched[:NAMES_SAID]:
            context.log.warning("no feed takes a file of the name %s, or two do: it is left where it is", shown(name))
        for name in found.refused[:NAMES_SAID]:
            context.log.warning("%s: %s; left where it is", shown(name), LEADS_OUT)
        for name, why in list(found.unreadable.items())[:NAMES_SAID]:
            context.log.warning("%s cannot be read: %s; it is left where it is, and tried again", shown(name), why)
        requests: list[dg.RunRequest] = []
        additions: Additions = []
        for feed in catalog.feeds:
            batches = list(found.ready.get(feed.name, {}).values())
            runs, new = ask_for(context.instance, feed, batches, now.isoformat(), found.names)
            requests += runs
            additions += new
        return dg.SensorResult(
            run_requests=requests,
            dynamic_partitions_requests=additions,
            cursor=to_cursor(found.seen),
            skip_reason=None if requests else _nothing(found),
        )

    return inbox


def _reference_first(waiting: Sequence[Path], before: Seen, turn: int) -> dg.SensorResult:
    """Request the load of reference data once its files have stopped growing. Imports wait until it succeeds.

    turn: number of the current quarter of an hour. It is part of the run key, so that a failed load runs again in the
    next one. A load that succeeded since finds nothing to do.
    """
    looked, now = [(path, path.stat()) for path in waiting], datetime.now(UTC)
    marks = frozenset(mark_of(path, about) for path, about in looked)
    still = all(_is_quiet(about, now) or mark_of(path, about) in before.still for path, about in looked)
    request = dg.RunRequest(f"{_mark(sorted(marks))} {turn}", job_name=reference.JOB)
    names = ", ".join(path.name for path in waiting[:NAMES_SAID])
    return dg.SensorResult(
        run_requests=[request] if still else [],
        cursor=to_cursor(Seen(before.still | marks, before.asked, before.left, before.feeds)),
        skip_reason=None if still else f"Imports wait for reference data: {names}.",
    )


@contextmanager
def _ledger(home: Path, environ: Mapping[str, str]) -> Iterator[Ledger | None]:
    """Open the ledger; yield None if there is none yet."""
    if not has_ledger(home, environ):
        yield None
        return
    with closing(open_ledger(home, environ)) as ledger:
        yield ledger


def _nothing(found: Look) -> str:
    return (
        f"Nothing new: {len(found.still)} files are not yet still, {len(found.asked)} are in runs that were asked for, "
        f"{len(found.left)} are taken by no feed."
    )
