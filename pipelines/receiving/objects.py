"""Objects of an inbox beyond the home become batches: each is fetched into a scratch folder and received."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pipelines.feeds.files.catalog import Catalog, Feed, FeedError
from pipelines.home.batch import ReceivedFile, UnreadableFile, reason_of
from pipelines.home.file_growth import WRITING, is_written
from pipelines.home.objects import ExportObject, ObjectFindings, ObjectInbox
from pipelines.home.scratch import throwaway_folder
from pipelines.home.stores import Folder, StoreUnusable
from pipelines.ledger.ledger import Ledger
from pipelines.receiving.stage import receive
from pipelines.session.answered_rejects import feed_of

NO_FEED = "no feed takes a file of this name (see: chartferry feeds check)"


class TakenObject(NamedTuple):
    """An object that became a batch. runs: the number of the batch's runs at the target before."""

    feed: Feed
    batch: ReceivedFile
    export: ExportObject
    target: str
    runs: int

    def is_begun(self, ledger: Ledger) -> bool:
        """True if a run of the batch began since the batch was received. No clock is needed for that."""
        return _runs_of(ledger, self.target, self.batch) > self.runs


@dataclass
class TakenObjects:
    """The fates of objects: batches in the order of feeds and names, and the reasons why others were left, by name."""

    received: list[TakenObject] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Return the number of objects that became batches or were left."""
        return len(self.received) + len(self.left)


def take_in(
    inbox: ObjectInbox,
    found: ObjectFindings,
    home: Path,
    catalog: Catalog,
    ledger: Ledger,
    seconds: float | None = None,
) -> TakenObjects:
    """Receive the objects that are ready, feed by feed. Objects that remain after `seconds` are left to the next look.

    The caller notes them as taken once the run of their batch has begun or was requested: after a kill before that, the
    same bytes are received into the same batch. An object that cannot be fetched is left if the store can still be
    listed: it may be archived, or closed to these credentials. Raises StoreUnusable and LedgerError.
    """
    taken, until = (
        TakenObjects(left={name: inbox.why(seen) for name, seen in found.alone.items()}),
        None if seconds is None else time.monotonic() + seconds,
    )
    order = {feed.name: place for place, feed in enumerate(catalog.feeds)}
    for name, export in sorted(found.ready.items(), key=lambda each: (_place(each[0], catalog, order), each[0])):
        if until and time.monotonic() > until:
            break
        try:
            taken.received.extend(_received(inbox, export, home, catalog, ledger))
        except (FeedError, UnreadableFile) as error:
            taken.left[name] = str(error).removeprefix(f"{name}: ")
        except OSError as error:
            taken.left[name] = f"cannot be taken in: {reason_of(error)}"
        except StoreUnusable as error:
            inbox.store.lying()
            taken.left[name] = f"cannot be fetched: {str(error).removeprefix(f'{inbox.place}: ')}"
    return taken


def _runs_of(ledger: Ledger, target: str, batch: ReceivedFile) -> int:
    return max((int(run["run"]) for run in ledger.runs(target, batch.batch_id)), default=0)


def _place(name: str, catalog: Catalog, order: Mapping[str, int]) -> int:
    """Return the place of the feed that takes a file by its name; the last place if none does, or two do."""
    with suppress(FeedError):
        feed = catalog.match(name)
        return order[feed.name] if feed else len(order)
    return len(order)


def _received(
    inbox: ObjectInbox, export: ExportObject, home: Path, catalog: Catalog, ledger: Ledger
) -> Iterator[TakenObject]:
    """Yield the batch of an object; nothing if it has changed, or is gone. Raises `UnreadableFile`, `FeedError`."""
    name = export.name
    if catalog.match(name) is None:
        raise FeedError(f"{name}: {NO_FEED}")
    if isinstance(inbox.store, Folder) and is_written(inbox.store.path / name):
        raise UnreadableFile(f"{name}: {WRITING}")
    with throwaway_folder(home) as folder:
        path = inbox.fetch(export, folder)
        feed = path and feed_of(path, catalog, ledger)
        if path and feed:
            batch = receive(path, feed, home, batches=ledger.batches_in(home))
            yield TakenObject(feed, batch, export, inbox.target, _runs_of(ledger, inbox.target, batch))
