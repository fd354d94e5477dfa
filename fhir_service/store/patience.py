"""Patience with what requests read: it is ended where it takes too long, and all of it when the store is closed."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

_LOOK, _PAUSE = 1.0, 0.05
"""Seconds between two looks at what is under way, and between two attempts to end all of it."""
_ATTEMPTS = 100


class Read:
    """A read that is under way since a time. It cannot be ended before it has a connection, nor behind that."""

    def __init__(self, began: float, lock: threading.Lock) -> None:
        self.began, self._lock = began, lock
        self.end: Callable[[], object] = _nothing

    @contextmanager
    def ended_by(self, end: Callable[[], object]) -> Iterator[None]:
        """Let a function end the read, from any thread, until the context is left."""
        with self._lock:
            self.end = end
        try:
            yield
        finally:
            with self._lock:
                self.end = _nothing


def _nothing() -> None:
    pass


class Patience:
    """Ends what takes longer than some seconds. A thread looks for it, from the first read on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reads: set[Read] = set()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._watcher: threading.Thread | None = None

    @contextmanager
    def read(self) -> Iterator[Read]:
        """Around a read, from before it has a connection. Raises the outcome of a service that ends."""
        read = Read(time.monotonic(), self._lock)
        with self._lock:
            if self._closed.is_set():
                raise FhirError(UNAVAILABLE)
            self._reads.add(read)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="patience", daemon=True)
                self._watcher.start()
        try:
            yield read
        finally:
            with self._lock:
                self._reads.remove(read)

    def close(self) -> None:
        """End all that is under way. It is tried again: a read of several statements may have been between two."""
        with self._lock:
            self._closed.set()
        for _ in range(_ATTEMPTS):
            if not self._reads:
                return
            self._end(math.inf)
            time.sleep(_PAUSE)

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK):
            self._end(time.monotonic() - self._seconds)

    def _end(self, before: float) -> None:
        """End what began before a time."""
        with self._lock:
            for read in self._reads:
                if read.began <= before:
                    read.end()
