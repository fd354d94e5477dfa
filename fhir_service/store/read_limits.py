"""A time limit for the reads of requests. When the store is closed, all of them are ended."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

_LOOK, _PAUSE = 1.0, 0.05
"""Seconds between two looks for slow reads, and between two attempts to end all reads."""
_ATTEMPTS = 100


class TimedRead:
    """A read, with the monotonic time of its beginning. It can be ended only while it has a connection."""

    def __init__(self, began: float, lock: threading.Lock) -> None:
        self.began, self._lock = began, lock
        self.end: Callable[[], object] = _nothing

    @contextmanager
    def ended_by(self, end: Callable[[], object]) -> Iterator[None]:
        """Within this context, any thread may call `end` to end the read."""
        with self._lock:
            self.end = end
        try:
            yield
        finally:
            with self._lock:
                self.end = _nothing


def _nothing() -> None:
    pass


class ReadTimeLimit:
    """End reads that take longer than `seconds`. The first read starts a thread that looks for them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reads: set[TimedRead] = set()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._watcher: threading.Thread | None = None

    @contextmanager
    def read(self) -> Iterator[TimedRead]:
        """Enter this context before a read takes a connection. Raises the 503 of a service that is ending."""
        read = TimedRead(time.monotonic(), self._lock)
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
        """End all reads. Try again for those that were between two statements."""
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
        """End the reads that began before a time."""
        with self._lock:
            for read in self._reads:
                if read.began <= before:
                    read.end()
