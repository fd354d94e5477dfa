"""The results of looks at an inbox beyond the home, and a note of since when they fail, and why.

The note is a file: other sensors and a check read it, and the process that looks may be restarted.
"""

import json
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from pipelines.home.batch import printable_name
from pipelines.home.files import write_whole
from pipelines.receiving.objects import TakenObjects

NOTE = Path("dagster") / "inbox-out-of-reach.json"
FORGOTTEN_AFTER = timedelta(minutes=15)
"""Each failed look writes the note again, so an older note is of a sensor that has not looked since."""


@dataclass(frozen=True)
class ObjectLook:
    """The results of one look.

    * received: names of files by batch.
    * said: sentences for the log.
    * again: batches that were received before, so that a run of them may be under way.
    """

    received: Mapping[tuple[str, str], str] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    again: frozenset[str] = frozenset()

    @classmethod
    def of(cls, taken: TakenObjects, again: Container[str]) -> "ObjectLook":
        """Return the results of a look. again: the marks of objects that were received before."""
        received = {(each.feed.name, each.batch.batch_id): each.batch.file_name for each in taken.received}
        said = (
            f"{printable_name(name)}: {why}; it is left where it is, and tried again"
            for name, why in taken.left.items()
        )
        before = (each.batch.batch_id for each in taken.received if each.export.mark in again)
        return cls(received, tuple(said), frozenset(before))

    def batches(self, feed: str, under_way: Callable[[], Container[str]]) -> list[str]:
        """Return the batches of a feed that need a run, in the order in which they were received."""
        mine = (batch_id for name, batch_id in self.received if name == feed)
        return [batch_id for batch_id in mine if batch_id not in self.again or batch_id not in under_way()]

    @property
    def names(self) -> dict[str, str]:
        """Return the names of files by batch."""
        return {batch_id: name for (_, batch_id), name in self.received.items()}


@dataclass(frozen=True)
class OutOfReach:
    """No file can be received from the inbox. since: the first failed look in a row. why: the last one's reason."""

    since: datetime
    why: str


def note_look(home: Path, why: str | None, now: datetime) -> None:
    """Note why a look failed; None removes the note. If the disk is full, for example, nothing is noted."""
    with suppress(OSError):
        if why is None:
            (home / NOTE).unlink(missing_ok=True)
            return
        before = out_of_reach(home, now)
        said = {"since": (before.since if before else now).isoformat(), "last": now.isoformat(), "why": why}
        (home / NOTE).parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(home / NOTE, json.dumps(said).encode())


def out_of_reach(home: Path, now: datetime) -> OutOfReach | None:
    """Return since when all looks failed; None if the last look succeeded, or was long ago."""
    try:
        said = json.loads((home / NOTE).read_bytes())
        since, last = (datetime.fromisoformat(said[name]) for name in ("since", "last"))
    except (OSError, ValueError):
        return None
    return OutOfReach(since, said["why"]) if abs(now - last) <= FORGOTTEN_AFTER else None
