"""The inbox beyond the home: what lies right below a place, each taken once by its name and mark.

Nothing there is changed or removed. What was taken is noted beside the batches, for all machines that have them.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Self

from pipelines.home.batch import CONTROL, is_control
from pipelines.home.inbox import Inbox
from pipelines.home.stores import Folder, Held, Seen, SomebodyElse, Store, StoreUnusable, store_at

NOTES = ".inbox"
"""The folder for notes below a home's batches, where they are kept nowhere else."""
TRIES = 50
MANY = 20_000
"""Notes from which on those of objects that are not there any more are left out."""


@dataclass
class Found:
    """What one look found. ready: objects to take, by name. still: marks to be compared at the next look."""

    ready: dict[str, Seen] = field(default_factory=dict)
    still: set[str] = field(default_factory=set)
    lying: dict[str, Seen] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectInbox:
    """An inbox beyond the home. place: its address. notes: the store with what was taken."""

    place: str
    store: Store
    notes: Store

    @classmethod
    def of(cls, inbox: Inbox) -> Self | None:
        """Return the one that the settings name. Raises StoreUnusable."""
        if inbox.beyond is None:
            return None
        own = inbox.folder.parent / "batches"
        is_kept = inbox.batches and Path(inbox.batches).absolute() != own.absolute()
        notes = store_at(str(inbox.batches)) if is_kept else Folder(own / NOTES)
        return cls(inbox.beyond, store_at(inbox.beyond), notes)

    def look(self, before: Collection[str], now: datetime, quiet_seconds: float) -> Found:
        """Find objects that were not taken yet. Raises StoreUnusable.

        One is ready if it was written some seconds ago, or was there with this mark at the look before. Its control
        totals are waited for likewise.
        """
        found = Found(lying={name: seen for name, seen in self.store.lying().items() if not name.startswith(".")})
        taken = self._taken(self.notes.read(self._key)) if found.lying else {}
        moving = {
            name
            for name, seen in found.lying.items()
            if seen.mark not in before and (now - seen.at).total_seconds() < quiet_seconds
        }
        for name, seen in sorted(found.lying.items()):
            if is_control(name) or taken.get(name) == seen.mark:
                continue
            beside = f"{name}{CONTROL}"
            if name in moving or beside in moving:
                found.still |= {each.mark for each in (seen, found.lying.get(beside)) if each}
            else:
                found.ready[name] = seen
        return found

    def fetch(self, name: str, seen: Seen, folder: Path) -> Path | None:
        """Copy an object to a folder; None if it is not as it was seen any more. Raises StoreUnusable, `OSError`."""
        path = folder / name
        if not self.store.fetch(name, path):
            return None
        now = self.store.seen(name)
        return path if now and now.mark == seen.mark else None

    def note(self, name: str, seen: Seen, lying: Collection[str]) -> None:
        """Note that an object is in its batch. lying: the names that are there. Raises StoreUnusable."""
        for _ in range(TRIES):
            held = self.notes.read(self._key)
            taken = {**self._taken(held), name: seen.mark}
            if len(taken) > MANY:
                taken = {each: mark for each, mark in taken.items() if each in lying}
            try:
                self.notes.swap(self._key, json.dumps(taken).encode(), held)
            except SomebodyElse:
                continue
            return
        raise StoreUnusable(f"{self._key} changed at each of {TRIES} tries")

    @property
    def _key(self) -> str:
        return f"inbox/{hashlib.sha256(self.place.rstrip('/').encode()).hexdigest()[:16]}.json"

    def _taken(self, held: Held | None) -> dict[str, str]:
        """Return the mark of each object that was taken, by name. Raises StoreUnusable."""
        try:
            return {str(name): str(mark) for name, mark in json.loads(held.content).items()} if held else {}
        except (ValueError, AttributeError):
            raise StoreUnusable(f"{self._key} there is damaged: remove it, and all objects are taken anew") from None
