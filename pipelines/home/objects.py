"""The inbox beyond the home: each object directly below a place is taken once, by name and mark, for each target.

Nothing there is changed or removed. Taken objects are noted beside the batches, for all machines that use these: one
note for each object, whose key is a hash.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self
from uuid import uuid4

from pipelines.home.batch import CONTROL, is_control
from pipelines.home.file_growth import is_quiet
from pipelines.home.inbox import Inbox
from pipelines.home.stores import UNREAD, Folder, ListedObject, SomebodyElse, Store, StoreUnusable, store_at

NOTES = ".inbox"
"""The folder for notes below a home's batches, if they are kept nowhere else."""
MANY = 20_000
"""The number of notes about vanished objects from which on such notes are removed."""
ALONE = "control totals, and the file that they are of is not here"
NO_NAME = "its name is not a path, and may hide objects whose names sort before it: rename or remove it"
NO_STORE = "what answers there is no object store: check the address that the environment names, as AWS_ENDPOINT"
"""A web page is read as an empty listing, and seems to have every object that is asked for."""


class ExportObject(NamedTuple):
    """An object with its control totals, as a look saw them."""

    name: str
    seen: ListedObject
    control: ListedObject | None = None

    @property
    def mark(self) -> str:
        """A text that changes once the object or its control totals were put again."""
        return f"{self.name}\n{self.seen.mark}\n{self.control.mark if self.control else ''}"


@dataclass
class ObjectFindings:
    """The findings of one look. ready: to be taken now. still: marks by name, to compare at the next look.

    alone: control totals without their file, and objects whose names cannot be fetched. before: the number taken
    before.
    """

    ready: dict[str, ExportObject] = field(default_factory=dict)
    still: dict[str, str] = field(default_factory=dict)
    alone: dict[str, ListedObject] = field(default_factory=dict)
    before: int = 0


@dataclass(frozen=True)
class ObjectInbox:
    """An inbox beyond the home. place: its address. notes: the store with notes of taken objects, for this target."""

    place: str
    store: Store
    notes: Store
    target: str

    @classmethod
    def of(cls, inbox: Inbox, target: str) -> Self | None:
        """Return the inbox that the settings name; None if they name none. Raises StoreUnusable."""
        if inbox.beyond is None:
            return None
        own = inbox.folder.parent / "batches"
        is_kept = inbox.batches and Path(inbox.batches).absolute() != own.absolute()
        notes = store_at(str(inbox.batches)) if is_kept else Folder(own / NOTES)
        return cls(inbox.beyond, store_at(inbox.beyond), notes, target)

    def look(self, before: Mapping[str, str], now: datetime, quiet_seconds: float) -> ObjectFindings:
        """Find objects that were not taken yet. Raises StoreUnusable.

        An object is ready if it was written some seconds ago, or had this mark at the look before. Its control totals
        are waited for likewise. It is ready again once they change.
        """
        noted = set(self.notes.names(self._folder))  # before the listing: what is noted later does not seem gone
        lying, found, there = lying_at(self.store), ObjectFindings(), set[str]()
        moving = {
            name: seen.mark
            for name, seen in lying.items()
            if before.get(name) != seen.mark and not self._is_quiet(name, seen, now, quiet_seconds)
        }
        for name, seen in sorted(lying.items()):
            if seen.mark == UNREAD:
                found.alone[name] = seen
            elif is_control(name):
                if name.removesuffix(CONTROL) not in lying and name in moving:
                    found.still[name] = seen.mark
                elif name.removesuffix(CONTROL) not in lying:
                    found.alone[name] = seen
            if seen.mark == UNREAD or is_control(name):
                continue
            beside = f"{name}{CONTROL}"
            export = ExportObject(name, seen, lying.get(beside))
            there.add(note := self._note(export))
            if note in noted:
                found.before += 1
            elif name in moving or beside in moving:
                found.still |= {each: lying[each].mark for each in (name, beside) if each in lying}
            else:
                found.ready[name] = export
        # After an unreadable name, the listing may not show all objects.
        if len(gone := noted - there) > MANY and UNREAD not in {seen.mark for seen in lying.values()}:
            self.notes.remove([f"{self._folder}{each}" for each in gone])
        return found

    @staticmethod
    def why(seen: ListedObject) -> str:
        """Return why an object in `alone` is left."""
        return NO_NAME if seen.mark == UNREAD else ALONE

    def fetch(self, export: ExportObject, folder: Path) -> Path | None:
        """Copy an object and its control totals to a folder; None if they have changed since they were seen.

        Raises StoreUnusable, `OSError`.
        """
        path, beside = folder / export.name, f"{export.name}{CONTROL}"
        if export.control and not self.store.fetch(beside, folder / beside):
            return None
        if not self.store.fetch(export.name, path):
            return None
        now = ExportObject(
            export.name, self.store.seen(export.name) or export.seen._replace(mark=""), self.store.seen(beside)
        )
        return path if now.mark == export.mark else None

    def note(self, export: ExportObject) -> None:
        """Note that an object is in its batch, and that its run has begun or was asked for. Raises StoreUnusable."""
        with suppress(SomebodyElse):  # another machine noted it
            self.notes.swap(f"{self._folder}{self._note(export)}", b"taken", None)

    def _is_quiet(self, name: str, seen: ListedObject, now: datetime, seconds: float) -> bool:
        """True if an object was written some seconds ago. In an object store it is there whole, whatever the clock."""
        if isinstance(self.store, Folder):
            return is_quiet(self.store.path / name, seen.at.timestamp(), now.timestamp(), timedelta(seconds=seconds))
        return (now - seen.at).total_seconds() >= seconds

    @property
    def _folder(self) -> str:
        place = self.place.rstrip("/")
        return f"inbox/{_hash(f'{place} {self.target}')}/"

    @staticmethod
    def _note(export: ExportObject) -> str:
        return _hash(export.mark)


def lying_at(store: Store) -> dict[str, ListedObject]:
    """Return the objects directly below a place, without hidden ones and the nameless mark of the folder itself.

    Raises StoreUnusable.
    """
    lying = store.lying()
    if not lying and store.seen(uuid4().hex):
        raise StoreUnusable(NO_STORE)
    return {name: seen for name, seen in lying.items() if seen.mark == UNREAD or (name and not name.startswith("."))}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
