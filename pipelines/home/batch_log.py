"""A batch at a store: contents of files by their hashes, and a log that lists the batch's files.

`log/<batch>/<number>.json` is an entry: files that a stage made, and files that are gone. Contents are
`files/<batch>/<purges>-<sha256>`, and are there before the entry that names them: so a file is there whole, or not at
all. Nothing is replaced. If two machines add an entry at once, one gets the number; the other reads that entry and
makes its own again. Neither a clock nor a listing decides what a batch has.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pipelines.home.stores import SomebodyElse, Store, StoreUnusable

TRIES = 50
DONE = "done"


class FileVersion(NamedTuple):
    """A file as a stage made it: the key of its content, its hash and size, and its time in microseconds since 1970."""

    key: str
    sha256: str
    size: int
    micros: int

    @property
    def mark(self) -> tuple[int, int]:
        """The size and time by which a file on a disk is recognized as this version."""
        return self.size, self.micros


@dataclass
class BatchHistory:
    """The sum of a batch's entries. now: the present files by path. keys, seen: of all present and earlier files.

    runs: names of runs' folders. purges: how often rows were removed; later contents get other keys than the deleted
    ones. purged: the runs that had begun before a purge. purging: True if purged contents may not be deleted yet.
    """

    entries: int = 0
    purges: int = 0
    now: dict[str, FileVersion] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    seen: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    runs: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    purging: bool = False

    def has_seen(self, path: str, mark: tuple[int, int]) -> bool:
        """True if a file is one that the batch has, or had, under this path."""
        return mark in self.seen.get(path, ())

    def add(self, said: Mapping[str, Any]) -> None:
        """Add an entry. Raises ValueError, KeyError or TypeError for an invalid one."""
        for path, about in said["files"].items():
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError
            version = FileVersion(str(about["key"]), str(about["sha256"]), int(about["size"]), int(about["micros"]))
            self.now[path] = version
            self.keys.add(version.key)
            self.seen.setdefault(path, set()).add(version.mark)
        for path in said["gone"]:
            self.now.pop(path, None)
        self.runs |= {path.partition("/")[0] for path in said["files"]} | {*said["begins"]}
        if said["purges"]:
            self.purges += 1
            self.purged |= self.runs
        self.purging = bool(said["purges"]) or (self.purging and not said["deleted"])
        self.entries += 1


class LogEntry(NamedTuple):
    """An addition to the log of a batch.

    begins: the folder of a run, which no other run may have after that. purges: True if the files in `gone` are rows,
    whose contents are to be deleted. deleted: True if these contents were deleted.
    """

    files: Mapping[str, FileVersion] = {}
    gone: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    purges: bool = False
    deleted: bool = False

    def as_json(self) -> bytes:
        """Return the entry as text that no other machine writes."""
        files = {path: version._asdict() for path, version in self.files.items()}
        return json.dumps({**self._asdict(), "files": files, "by": uuid4().hex}).encode()


class BatchLog:
    """The log of one batch at a store. copies: the folder with copies of the entries that were read."""

    def __init__(self, store: Store, batch_id: str, copies: Path) -> None:
        self._store, self._batch_id, self._copies = store, batch_id, copies
        self.history = BatchHistory()
        self._is_listed = False

    def read(self, known: int | None = None) -> BatchHistory:
        """Read the new entries. known: the number of entries that a listing has shown.

        Raises StoreUnusable, also if an entry is missing before later ones.
        """
        while known is None or self.history.entries < known:
            number = self.history.entries + 1
            content = self._copy_of(number)
            if content is None:
                held = self._store.read(self._key(number))
                if held is None:
                    if known is not None:
                        raise StoreUnusable(f"{self._key(number)} is not there any more: restore it")
                    break
                content = held.content
                self._write_copy(f"{number}.json", content)
            self._add(number, content)
        return self.history

    def is_done(self, number: int) -> bool:
        """True if this machine has done what the entries up to a number ask for."""
        try:
            return (self._copies / DONE).read_text() == str(number)
        except (OSError, ValueError):
            return False

    def note_done(self) -> None:
        """Note that this machine has done what the entries ask for. If the disk is full, it is done again later."""
        self._write_copy(DONE, str(self.history.entries).encode())

    def known(self) -> BatchHistory:
        """Return the history as last read; read it if it was not read before."""
        return self.history if self.history.entries else self.read()

    def append(self, make: Callable[[BatchHistory], LogEntry | None]) -> bool:
        """Add the entry that `make` returns for the history; return False if it returns None. Raises StoreUnusable.

        `make` is called again if another machine was first.
        """
        self.read()
        self._check_nothing_follows()
        for _ in range(TRIES):
            entry = make(self.history)
            if entry is None:
                return False
            number, content = self.history.entries + 1, entry.as_json()
            try:
                self._store.swap(self._key(number), content, None)
            except SomebodyElse:
                self.read()
                continue
            self._write_copy(f"{number}.json", content)
            self._add(number, content)
            return True
        raise StoreUnusable(f"the log of {self._batch_id} changed at each of {TRIES} tries")

    def put(self, history: BatchHistory, sha256: str, file: Path) -> str:
        """Put a content to the store, unless the batch has it; return its key. Raises StoreUnusable."""
        for version in history.now.values():
            if version.sha256 == sha256:
                return version.key
        key = f"files/{self._batch_id}/{history.purges}-{sha256}"
        self._store.put(key, file)
        return key

    def put_again(self, version: FileVersion, file: Path) -> None:
        """Put a content once more, because its object is damaged or gone. Raises StoreUnusable."""
        self._store.put(version.key, file)

    def fetch(self, version: FileVersion, file: Path) -> bool:
        """Copy a content to a file; return False if the content is missing. Raises StoreUnusable."""
        return self._store.fetch(version.key, file)

    def delete_old(self) -> None:
        """Delete contents that were put before rows were removed, except those of remaining files.

        Contents that another machine puts meanwhile are found the next time.
        """
        if not self.history.purges:
            return
        needed = {version.key for version in self.history.now.values()}
        # There may also be contents whose entry was never written.
        there = self.history.keys | self._store.ages(f"files/{self._batch_id}/").keys()
        self._store.remove([key for key in there if key not in needed and _purges(key) < self.history.purges])
        purges = self.history.purges
        self.append(lambda history: LogEntry(deleted=True) if history.purging and history.purges == purges else None)

    def _check_nothing_follows(self) -> None:
        """Raise StoreUnusable if an entry is missing before later ones, so that none takes its place. Checked once."""
        if not self._is_listed:
            listed = max((number_of(name) for name in self._store.names(f"log/{self._batch_id}/")), default=0)
            self.read(listed)
            self._is_listed = True

    def _key(self, number: int) -> str:
        return f"log/{self._batch_id}/{number}.json"

    def _copy_of(self, number: int) -> bytes | None:
        """Return a copy of an entry; None if there is none, or if its end is missing after a crash of the machine."""
        try:
            content = (self._copies / f"{number}.json").read_bytes()
        except FileNotFoundError:
            return None
        return content if content.endswith(b"}") else None

    def _write_copy(self, name: str, content: bytes) -> None:
        """Write the copy of an entry, or a note. If the disk is full, it is read from the store the next time."""
        with suppress(OSError):
            self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._copies / name
            part = path.with_name(f"{uuid4().hex}.part")
            part.write_bytes(content)
            part.replace(path)

    def _add(self, number: int, content: bytes) -> None:
        try:
            self.history.add(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreUnusable(f"{self._key(number)} there is damaged: restore it") from None


def number_of(name: str) -> int:
    """Return the number of an entry from its name; 0 for another name."""
    number, _, kind = name.partition(".")
    return int(number) if number.isdecimal() and kind == "json" else 0


def _purges(key: str) -> int:
    """Return the number of purges before a content was put; -1 for the remains of a killed copy, which count as old."""
    said = key.rpartition("/")[2].partition("-")[0]
    return int(said) if said.isdecimal() else -1
