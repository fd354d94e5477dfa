"""A cache of bodies that were read, for a process that alone writes to its store.

The writer removes what it has changed after its commit and before it answers. So a read never shows an older version
than one that was acknowledged before the read began. A look-up takes time: each removal ends an epoch, and a body that
was looked up in an earlier epoch is not kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

OVERHEAD = 500
"""Bytes that an entry takes beside its body, about."""

Reference = tuple[str, str]
"""Type and id."""


class Found(NamedTuple):
    """A stored resource: its body with markers, version, time of the last change, and the ids of whom it is about."""

    body: bytes
    version: int
    updated_at: datetime
    patients: tuple[str, ...]


class Bodies:
    """The cache. Of the least recently used, it removes what exceeds `most` bytes. Safe for several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._found: OrderedDict[Reference, Found] = OrderedDict()
        self._epoch = 0
        self.size = self.hits = self.misses = 0

    def get(self, reference: Reference) -> Found | None:
        """Return what is kept of a resource."""
        with self._lock:
            found = self._found.get(reference)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
                self._found.move_to_end(reference)
            return found

    def epoch(self) -> int:
        """Return the epoch in which a look-up begins."""
        with self._lock:
            return self._epoch

    def keep(self, reference: Reference, found: Found, epoch: int) -> None:
        """Keep what was looked up, if nothing has changed since that epoch."""
        size = len(found.body) + OVERHEAD
        with self._lock:
            if epoch != self._epoch or size > self._most or reference in self._found:
                return
            self._found[reference] = found
            self.size += size
            while self.size > self._most:
                _, oldest = self._found.popitem(last=False)
                self.size -= len(oldest.body) + OVERHEAD

    def forget(self, changed: Iterable[Reference]) -> None:
        """Remove what was changed."""
        with self._lock:
            self._epoch += 1
            for reference in changed:
                if found := self._found.pop(reference, None):
                    self.size -= len(found.body) + OVERHEAD

    def forget_all(self) -> None:
        """Remove everything: it is not known what was changed."""
        with self._lock:
            self._epoch += 1
            self._found.clear()
            self.size = 0
