"""A cache of bodies and of pages of searches, for a process that is the only writer of its store.

A client that reads page after page would push all else out of the cache. For such clients there are stretches beside
it: long parts of the answer to a search, each read at once. Only a few are kept.

The law: a read never shows an older state than one that was acknowledged before the read began, and a page shows one
state. Before a commit, the writer removes all that the commit changes, and nothing of it is kept until the commit is
done. A look-up may begin before a commit and end after it. Therefore the beginning and the end of each commit begin a
new epoch, and the cache keeps a look-up only if its epoch has not ended, and no commit is under way.
"""

import math
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

OVERHEAD = 500
"""Approximate bytes of an entry beside its body."""
_OF_AN_ID = 100
"""Approximate bytes of an id in the answer to a search."""
STRETCH = 1_000
"""The resources of a stretch. No page has more."""
_STRETCHES_ARE = 8
"""All stretches together may add an eighth of the cache's bytes, and one half of that: a page may lie in two."""
_LEAST = 1 << 20
"""With fewer bytes for all stretches, none is read: it would hold little more than a page."""

CALM = 1.0
"""For so many seconds after a commit no stretch is read: the next commit would soon remove it."""

Reference = tuple[str, str]
"""Type and id of a resource."""


@dataclass(frozen=True, slots=True)
class SearchKey:
    """A search as a key of the cache: type, filters and order as sent, and a part of the answer."""

    type: str
    sent: tuple[tuple[str, str], ...]
    count: int
    offset: int

    @property
    def stretch(self) -> "SearchKey":
        """The stretch in which this part begins. It ends in that one or in the next."""
        return replace(self, count=STRETCH, offset=self.offset // STRETCH * STRETCH)

    @property
    def stretches(self) -> list["SearchKey"]:
        """The one or two stretches in which this part lies."""
        first = self.stretch
        return [first] if self.offset + self.count <= first.offset + first.count else [first, first.following]

    @property
    def following(self) -> "SearchKey":
        """The next part of the answer, of the same length."""
        return replace(self, offset=self.offset + self.count)


class StoredVersion(NamedTuple):
    """A version of a stored resource: body with markers, number and time of the version, and ids of its patients."""

    id: str
    body: bytes
    version: int
    updated_at: datetime
    patients: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD


@dataclass(frozen=True, slots=True)
class _ListedIds:
    """The answer to a search: the number of matches, and the ids on the page."""

    total: int
    ids: tuple[str, ...]
    size: int


class Stretch(NamedTuple):
    """A long part of the answer to a search: the number of matches, and the resources of the part.

    The last resources are missing if they would take too many bytes.
    """

    total: int
    found: list[StoredVersion]
    size: int


class _Stretches:
    """The newest stretches, up to `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[SearchKey, Stretch] = OrderedDict()
        self.size = 0

    def has(self, part: SearchKey) -> bool:
        return part in self._kept

    def page(self, question: SearchKey) -> tuple[int, list[StoredVersion]] | None:
        """Return total and page of a search if stretches hold it. All stretches are of one state."""
        part = question.stretch
        here = self._kept.get(part)
        if here is None:
            return None
        end = min(question.offset + question.count, here.total)
        found = here.found[question.offset - part.offset : end - part.offset]
        if end > part.offset + STRETCH and (there := self._kept.get(part.following)):
            found += there.found[: end - part.following.offset]
        return (here.total, found) if len(found) == max(0, end - question.offset) else None

    def keep(self, part: SearchKey, stretch: Stretch) -> None:
        if part in self._kept:
            return
        self._kept[part] = stretch
        self.size += stretch.size
        while self.size > self.most:
            self.size -= self._kept.popitem(last=False)[1].size

    def drop(self, types: Collection[str]) -> None:
        """Remove the stretches of some types."""
        for part in [each for each in self._kept if each.type in types]:
            self.size -= self._kept.pop(part).size

    def clear(self) -> None:
        self._kept.clear()
        self.size = 0


class Epoch(NamedTuple):
    """The beginnings and ends so far of commits that change bodies, and of all commits.

    An odd number means that a commit is under way.
    """

    changes: int
    commits: int


class BodyCache:
    """The cache. Above `most` bytes it removes the least recently used entries. Safe for several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[Reference | SearchKey, StoredVersion | _ListedIds] = OrderedDict()
        self._questions: defaultdict[str, set[SearchKey]] = defaultdict(set)
        self._stretches = _Stretches(most // _STRETCHES_ARE)
        self.of_a_stretch = self._stretches.most // 2 if self._stretches.most > _LEAST else 0
        """The most bytes of a stretch; 0 if none are kept."""
        self._epoch, self._stored_at = Epoch(0, 0), -math.inf
        self.size = 0
        self.reads: Counter[tuple[str, bool]] = Counter()
        """The number of look-ups of a `resource` or a `search`, by True if it was found."""

    @property
    def held(self) -> int:
        """The bytes of all entries and stretches."""
        return self.size + self._stretches.size

    def get(self, reference: Reference) -> StoredVersion | None:
        """Return a resource if it is kept."""
        with self._lock:
            found = self._get(reference)
            self.reads["resource", found is not None] += 1
            return found

    def page(self, question: SearchKey) -> tuple[int, list[StoredVersion]] | None:
        """Return total and page of a search if all of it is kept. All of it is of one state."""
        with self._lock:
            found = self._page(question) or self._stretches.page(question)
            self.reads["search", found is not None] += 1
            return found

    def epoch(self) -> Epoch:
        """Return the current epoch. Call it before a look-up begins."""
        with self._lock:
            return self._epoch

    def keep(self, reference: Reference, found: StoredVersion, epoch: Epoch) -> None:
        """Keep a resource that was looked up if no body has changed since that epoch."""
        with self._lock:
            if epoch.changes == self._epoch.changes and epoch.changes % 2 == 0:
                self._keep(reference, found)

    def keep_page(self, question: SearchKey, total: int, ids: Sequence[str], epoch: Epoch) -> None:
        """Keep the answer to a search if nothing was stored since that epoch."""
        sent = sum(len(name) + len(value) for name, value in question.sent)
        with self._lock:
            if epoch == self._epoch and epoch.commits % 2 == 0:
                self._questions[question.type].add(question)
                self._keep(question, _ListedIds(total, tuple(ids), OVERHEAD + sent + _OF_AN_ID * len(ids)))

    @property
    def takes_stretches(self) -> bool:
        """True if stretches are kept, and nothing was stored within `CALM` seconds."""
        return self.of_a_stretch > 0 and time.monotonic() - self._stored_at > CALM

    def has_stretch(self, part: SearchKey) -> bool:
        with self._lock:
            return self._stretches.has(part)

    def keep_stretch(self, part: SearchKey, stretch: Stretch, epoch: Epoch) -> None:
        """Keep a stretch if nothing was stored since that epoch."""
        with self._lock:
            if epoch == self._epoch and epoch.commits % 2 == 0:
                self._stretches.keep(part, stretch)

    @contextmanager
    def changing(self, changed: Collection[Reference], types: Collection[str]) -> Iterator[None]:
        """Enter this context around a commit. Remove the changed resources, and all answers to searches of the types.

        Until the commit is done, nothing is kept in their place: a reader may see the state before it or after it.
        """
        with self._lock:
            self._passes(bool(changed))
            self._stretches.drop({*types, *(name for name, _ in changed)})
            for reference in changed:
                self._remove(reference)
            for name in types:
                for question in self._questions.pop(name, ()):
                    self._remove(question)
        try:
            yield
        finally:
            with self._lock:
                self._passes(bool(changed))

    @contextmanager
    def changing_all(self) -> Iterator[None]:
        """Enter this context around a commit whose changes are not known. Remove everything."""
        with self._lock:
            self._passes(changes=True)
            self._entries.clear()
            self._questions.clear()
            self._stretches.clear()
            self.size = 0
        try:
            yield
        finally:
            with self._lock:
                self._passes(changes=True)

    # --- under the lock ---

    def _passes(self, changes: bool) -> None:
        """Begin or end a commit."""
        self._epoch, self._stored_at = Epoch(self._epoch.changes + changes, self._epoch.commits + 1), time.monotonic()

    def _get(self, reference: Reference) -> StoredVersion | None:
        found = self._entries.get(reference)
        if not isinstance(found, StoredVersion):
            return None
        self._entries.move_to_end(reference)
        return found

    def _page(self, question: SearchKey) -> tuple[int, list[StoredVersion]] | None:
        listed = self._entries.get(question)
        if not isinstance(listed, _ListedIds):
            return None
        self._entries.move_to_end(question)
        page = [found for each in listed.ids if (found := self._get((question.type, each)))]
        return (listed.total, page) if len(page) == len(listed.ids) else None

    def _keep(self, key: Reference | SearchKey, entry: StoredVersion | _ListedIds) -> None:
        if entry.size > self._most or key in self._entries:
            return
        self._entries[key] = entry
        self.size += entry.size
        while self.size > self._most:
            oldest = next(iter(self._entries))
            self._remove(oldest)
            if isinstance(oldest, SearchKey):
                self._questions[oldest.type].discard(oldest)

    def _remove(self, key: Reference | SearchKey) -> None:
        if entry := self._entries.pop(key, None):
            self.size -= entry.size
