"""Objects of the inbox beyond the home become batches: each is fetched into scratch, and received from there."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.feeds.files.catalog import Catalog, Feed, FeedError
from pipelines.home.batch import CONTROL, Received, Unreadable
from pipelines.home.objects import Found, ObjectInbox
from pipelines.home.scratch import throwaway_folder
from pipelines.home.stores import Folder, Seen
from pipelines.ledger.ledger import Ledger
from pipelines.receiving.stage import receive
from pipelines.receiving.written import WRITING, is_written
from pipelines.session.answers import feed_of

NO_FEED = "no feed takes a file of this name (see: chartferry feeds check)"


@dataclass
class Taken:
    """What became of objects: batches by feed, in the order of names, and why others were left, by name."""

    received: list[tuple[Feed, Received]] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def take_in(
    inbox: ObjectInbox, found: Found, home: Path, catalog: Catalog, ledger: Ledger, seconds: float | None = None
) -> Taken:
    """Take in the objects that are ready, feed by feed. What remains after so many seconds is left to the next look.

    An object is noted as taken once its batch is kept: a kill in between takes the same bytes into the same batch.
    Raises StoreUnusable and LedgerError.
    """
    taken, until = Taken(), None if seconds is None else time.monotonic() + seconds
    order = {feed.name: place for place, feed in enumerate(catalog.feeds)}
    for name, seen in sorted(found.ready.items(), key=lambda each: (_place(each[0], catalog, order), each[0])):
        if until and time.monotonic() > until:
            break
        try:
            for feed, received in _received(
                inbox, name, seen, f"{name}{CONTROL}" in found.lying, home, catalog, ledger
            ):
                taken.received.append((feed, received))
                inbox.note(name, seen, found.lying)
        except (FeedError, Unreadable) as error:
            taken.left[name] = str(error).removeprefix(f"{name}: ")
        except OSError as error:
            taken.left[name] = f"cannot be taken in: {error.strerror or type(error).__name__}"
    return taken


def _place(name: str, catalog: Catalog, order: Mapping[str, int]) -> int:
    """The place of the feed that takes a file by its name; the last where none does, or two do."""
    with suppress(FeedError):
        feed = catalog.match(name)
        return order[feed.name] if feed else len(order)
    return len(order)


def _received(
    inbox: ObjectInbox, name: str, seen: Seen, has_control: bool, home: Path, catalog: Catalog, ledger: Ledger
) -> Iterator[tuple[Feed, Received]]:
    """Yield the batch of an object; nothing if it has changed, or is gone. Raises `Unreadable`, `FeedError`."""
    if catalog.match(name) is None:
        raise FeedError(f"{name}: {NO_FEED}")
    if isinstance(inbox.store, Folder) and is_written(inbox.store.path / name):
        raise Unreadable(f"{name}: {WRITING}")
    with throwaway_folder(home) as folder:
        if has_control:
            inbox.store.fetch(f"{name}{CONTROL}", folder / f"{name}{CONTROL}")
        path = inbox.fetch(name, seen, folder)
        feed = path and feed_of(path, catalog, ledger)
        if path and feed:
            yield feed, receive(path, feed, home, batches=ledger.batches_in(home))
