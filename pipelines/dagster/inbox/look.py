"""One look at the inbox: import files that have stopped growing, and compare the others at the next look.

A file is imported once it has not changed for some seconds, or two looks in a row saw the same mark, a short hash of
its name, size and times. If it is still there afterwards, and no run is about to take it, it is requested again with
growing pauses. The cursor of the sensor keeps the marks. A batch is named by the hash of its file; a large file is
hashed in a thread, across looks.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from pipelines.dagster.inbox.files import BYTES_OF_MARK, files_in, is_quiet, lain_for, mark_of, short_hash
from pipelines.dagster.requests import kept, understood
from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.dagster.unfinished import pause
from pipelines.feeds.files.catalog import Catalog, Feed, FeedError
from pipelines.home.batch import printable_name, reason_of
from pipelines.home.file_growth import is_written
from pipelines.home.inbox import LEADS_OUT, Inbox
from pipelines.home.preparing import INBOX
from pipelines.ledger.ledger import Ledger
from pipelines.session.answered_rejects import feed_of
from pipelines.session.ledger import ledger_of

SECONDS_FOR_ONE_FILE = 5.0
FILES_HASHED_AT_ONCE = 2
SECONDS_OF_HASHING = 20.0
FILES_A_LOOK = 1_000
NAMES_SAID = 20


@dataclass(frozen=True, order=True)
class FileRequests:
    """The requests for a file: how many, and when the next is due if the file is still there, in seconds since 1970."""

    tries: int = 0
    due: int = 0


@dataclass
class SeenFiles:
    """The marks of the files at a look, which the cursor keeps.

    * still: files to compare at the next look.
    * asked: requested files.
    * left: files that no feed takes, or whose link is refused.
    * feeds: a hash of the feeds and settings that decided which files are left.
    """

    still: set[str] = field(default_factory=set)
    asked: dict[str, FileRequests] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    feeds: str = ""


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


@dataclass
class InboxLook(SeenFiles):
    """The result of one look at the inbox: the marks, and the names of files to import or to warn about.

    * ready: batches to import now, by feed and by the mark of their file.
    * refused: links that lead out of the inbox.
    * unmatched: files that no feed takes.
    * unreadable: the reason by file name; these files are tried again.
    """

    ready: dict[str, dict[str, str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Return the number of files to import now."""
        return sum(map(len, self.ready.values()))


@dataclass(frozen=True)
class LookContext:
    """Everything that a look depends on, except the files.

    * ledger: with it, a file of corrected rejects is matched to their feed, whatever its name.
    * under_way: returns the batches of runs that have not ended; called only when needed.
    * inbox: decides which links may be followed.
    """

    catalog: Catalog
    now: datetime
    ledger: Ledger | None = None
    under_way: Callable[[], set[str]] = set
    hashes: Hashes = field(default_factory=Hashes)
    inbox: Inbox | None = None


def look(inbox: Path, before: SeenFiles, by: LookContext, seconds: float = SECONDS_OF_HASHING) -> InboxLook:
    """Compare the inbox with the previous look.

    Files that remain after `seconds` of hashing, or after `FILES_A_LOOK` files, are left to the next look.
    """
    links = by.inbox.links if by.inbox else ()
    # If a feed or a setting of links changes, the files that were left are looked at again.
    found = InboxLook(feeds=short_hash([*(each.hash for each in by.catalog.feeds), *map(str, links)]))
    until = time.monotonic() + seconds
    left = before.left if before.feeds == found.feeds else ()
    for path, about in files_in(inbox):
        mark = mark_of(path, about)
        if known := before.asked.get(mark):  # a request made while the clock was ahead is due after its usual pause
            known = replace(known, due=min(known.due, _due_after(known.tries, by.now)))
        if mark in left:
            found.left.add(mark)
        elif known is None and mark not in before.still and not is_quiet(path, about, by.now):
            found.still.add(mark)
        elif (known and known.due > by.now.timestamp()) or time.monotonic() > until or found.number >= FILES_A_LOOK:
            _not_now(mark, known, found)
        else:
            _take_up(path, mark, known, by, found)
    return found


def warnings_of(found: InboxLook) -> Iterator[str]:
    """Yield a sentence about each of the first files that are left where they are."""
    for name in found.unmatched[:NAMES_SAID]:
        yield f"no feed takes the file {printable_name(name)}, or two feeds do; it is left where it is"
    for name in found.refused[:NAMES_SAID]:
        yield f"{printable_name(name)}: {LEADS_OUT}; left where it is"
    for name, why in islice(found.unreadable.items(), NAMES_SAID):
        yield f"{printable_name(name)} cannot be read: {why}; it is left where it is, and tried again"


def _not_now(mark: str, known: FileRequests | None, found: InboxLook) -> None:
    """Leave a file to the next look. known: its earlier requests, if any."""
    if known:
        found.asked[mark] = known
    else:
        found.still.add(mark)


def _take_up(path: Path, mark: str, known: FileRequests | None, by: LookContext, found: InboxLook) -> None:
    """Request the batch of a file that has stopped growing, or note why the file is left."""
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
        found.unreadable[path.name] = reason_of(error)
        return
    if after != mark:
        found.still.add(after)
    elif written or batch_id is None:
        _not_now(mark, known, found)
    else:
        found.names[batch_id] = path.name
        _ask(feed, mark, batch_id, known or FileRequests(), by, found)


def _ask(feed: Feed, mark: str, batch_id: str, known: FileRequests, by: LookContext, found: InboxLook) -> None:
    """Request the batch now, unless a run of it has not ended. Note when the file is due again."""
    busy = batch_id in by.under_way()
    tries = known.tries if busy else known.tries + 1
    found.asked[mark] = FileRequests(tries, _due_after(tries, by.now))
    if not busy:
        found.ready.setdefault(feed.name, {})[mark] = batch_id


def _due_after(tries: int, now: datetime) -> int:
    return int((now + pause(max(0, tries - 1))).timestamp())


def _feed(path: Path, catalog: Catalog, ledger: Ledger | None) -> Feed | None:
    """Return the file's feed, or None if no feed takes it or several do."""
    try:
        return feed_of(path, catalog, ledger)
    except FeedError:
        return None


def lain_with_feed(
    home: Path, environ: Mapping[str, str], feeds: Sequence[Feed], now: datetime, least: timedelta
) -> Iterator[str]:
    """Yield the names of the files that have been in the inbox for `least`, without those that no feed takes."""
    if lain := lain_for(home / INBOX, now, least):
        with ledger_of(home, environ) as ledger:
            catalog = Catalog(tuple(feeds))
            yield from (printable_name(name) for name in lain if _feed(home / INBOX / name, catalog, ledger))


# -- the cursor


@dataclass(frozen=True)
class PackedMarks:
    """Marks joined to texts, to keep the cursor short. asked: the marks for each number of tries and due time."""

    still: str = ""
    asked: Sequence[tuple[int, int, str]] = ()
    left: str = ""
    feeds: str = ""


def to_cursor(seen: SeenFiles) -> str:
    alike: dict[FileRequests, list[str]] = {}
    for mark, each in seen.asked.items():
        alike.setdefault(each, []).append(mark)
    asked = [(each.tries, each.due, "".join(sorted(marks))) for each, marks in sorted(alike.items())]
    still, left = ("".join(sorted(marks)) for marks in (seen.still, seen.left))
    return kept(PackedMarks(still, asked, left, seen.feeds))


def from_cursor(cursor: str | None) -> SeenFiles:
    said = understood(cursor, PackedMarks, PackedMarks())
    by_mark = {mark: FileRequests(tries, due) for tries, due, marks in said.asked for mark in _marks(marks)}
    return SeenFiles(_marks(said.still), by_mark, _marks(said.left), said.feeds)


def _marks(text: str) -> set[str]:
    letters = BYTES_OF_MARK * 4 // 3
    return {text[at : at + letters] for at in range(0, len(text), letters)}
