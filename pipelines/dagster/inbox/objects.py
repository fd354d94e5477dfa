"""The inbox beyond the home, for the sensor: objects become batches in a thread beside its looks.

A batch whose run is never asked for, since the process ended in between, is found by the sensor of unfinished batches.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pipelines.dagster.workplace import OURS
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.batch import shown
from pipelines.home.dagster_folder import INSECURE, STRICT, is_set
from pipelines.home.inbox import Inbox
from pipelines.home.objects import ObjectInbox
from pipelines.home.stores import StoreUnusable
from pipelines.receiving.objects import Taken, take_in
from pipelines.receiving.written import QUIET
from pipelines.session.opening import open_session

PATIENCE_SECONDS = 5.0
SECONDS_OF_TAKING = 20.0
SECONDS_BEFORE_ANOTHER_TRY = 300.0


@dataclass(frozen=True)
class Beyond:
    """What a look found. received: names of files by batch. said: sentences for the log."""

    received: Mapping[tuple[str, str], str] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    def batches(self, feed: str) -> list[str]:
        """Return the batches of a feed, in the order in which they were taken in."""
        return [batch_id for name, batch_id in self.received if name == feed]

    @property
    def names(self) -> dict[str, str]:
        """Return the names of files by batch."""
        return {batch_id: name for (_, batch_id), name in self.received.items()}


class Objects:
    """Looks at the inbox beyond the home, if a setting names one."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home, self._environ = home, environ
        self._worker = ThreadPoolExecutor(1, "objects")
        self._under_way: Future[Beyond] | None = None
        self._still: set[str] = set()
        self._later: dict[str, float] = {}

    def look(self, catalog: Catalog) -> Beyond:
        """Return what was taken in since the last look. Taking in goes on beside, where it takes longer."""
        inbox = Inbox.of(self._home, self._environ)
        if inbox.beyond is None:
            return Beyond()
        if self._under_way is None:
            self._under_way = self._worker.submit(self._told, inbox, catalog)
        wait([self._under_way], PATIENCE_SECONDS)
        if not self._under_way.done():
            return Beyond()
        done, self._under_way = self._under_way, None
        return done.result()

    def _told(self, inbox: Inbox, catalog: Catalog) -> Beyond:
        try:
            return self._look(inbox, catalog)
        except (StoreUnusable, *OURS) as error:
            return Beyond(said=(f"{inbox.beyond}: nothing was taken in: {error}",))
        except Exception as error:  # noqa: BLE001 - its text may hold values
            return Beyond(said=(f"{inbox.beyond}: nothing was taken in: {type(error).__name__}, a fault of ours",))

    def _look(self, inbox: Inbox, catalog: Catalog) -> Beyond:
        beyond = ObjectInbox.of(inbox)
        if beyond is None:
            return Beyond()
        found = beyond.look(self._still, datetime.now(UTC), QUIET.total_seconds())
        now, self._still = time.monotonic(), found.still
        found.ready = {name: seen for name, seen in found.ready.items() if self._later.get(seen.mark, now) <= now}
        if not found.ready:
            return Beyond()
        insecure, strict = (is_set(self._environ, name) for name in (INSECURE, STRICT))
        with open_session(self._home, self._environ, (), insecure, strict) as session:
            taken = take_in(beyond, found, self._home, catalog, session.ledger, SECONDS_OF_TAKING)
        self._later |= {found.ready[name].mark: now + SECONDS_BEFORE_ANOTHER_TRY for name in taken.left}
        return _told_of(taken)


def _told_of(taken: Taken) -> Beyond:
    received = {(feed.name, each.batch_id): each.file_name for feed, each in taken.received}
    said = (f"{shown(name)}: {why}; it is left where it is, and tried again" for name, why in taken.left.items())
    return Beyond(received, tuple(said))
