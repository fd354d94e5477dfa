"""Limits of a target that a load finds out: the size of bundles that it takes, and how often it may fail to answer."""

from collections.abc import Iterator, Sequence
from math import inf
from threading import Lock

from pipelines.client.client import FhirClient
from pipelines.client.replies import AGAIN, unusable

MOST_UNCLEAR = 3
"""Bundles in a row without a clear answer after which the target counts as unusable."""


SMALLER = 4
"""The factor by which a bundle is smaller after one without an answer in time."""
QUICK = 1 / 4
"""The share of the time limit within which an answer shows that a bundle of twice the size is safe."""
CAREFUL = 16
SURELY = 1 / 16
"""The share of the time limit within which bundles may grow to about the size of one that was late, or beyond."""


class BundleSizes:
    """The bundle size (characters) that the target takes, learned from its answers. Safe to use from several threads.

    timeout: the seconds that an answer may take; lowered if a gateway gives up earlier.
    """

    def __init__(self, timeout: float) -> None:
        self._taken, self._too_large = 0, 0
        self._timeout, self._in_time, self._late = timeout, inf, inf

    def took(self, size: int, seconds: float) -> None:
        """Note that a bundle was taken. A quick answer lets the next bundles grow."""
        self._taken = max(self._taken, size)
        share = QUICK if 3 * size < self._late else SURELY
        if seconds < self._timeout * share:
            self._in_time = max(self._in_time, 2 * size)

    def found_slow(self, size: int, seconds: float) -> None:
        """Note that a bundle got no answer within some seconds. The next bundles are smaller."""
        self._timeout = min(self._timeout, seconds)
        self._in_time, self._late = min(self._in_time, size // SMALLER), min(self._late, size)

    def begin_small(self, size: int) -> None:
        """Begin with a small part of a bundle whose rows had no answer before, unless larger bundles were taken."""
        if not self._taken:
            self._in_time = min(self._in_time, size // CAREFUL)

    def found_too_large(self, size: int) -> None:
        self._too_large = min(self._too_large or size, size)
        self._taken = self._taken if self._taken < self._too_large else 0

    def parts(self, places: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
        """Yield the places in bundles of the size that the target should take; in one bundle if none was too large."""
        part, room = list[int](), 0.0
        for at in places:
            if part and sizes[at] > room:
                yield part
                part = []
            room = self._most() if not part else room
            part.append(at)
            room -= sizes[at]
        if part:
            yield part

    def _most(self) -> float:
        most = max(self._taken, self._too_large // 2) if self._too_large else inf
        return min(most, self._in_time)


class TroubleCounter:
    """Bundles in a row without a clear answer. After each, the load waits until the target answers a search."""

    def __init__(self, client: FhirClient, resource_type: str) -> None:
        self._client, self._resource_type, self._in_a_row = client, resource_type, 0
        self._lock = Lock()

    def is_over(self) -> None:
        self._in_a_row = 0

    def met(self, counts: bool) -> str | None:
        """Wait for the target; return the sentence that ends the load if the target does not come back.

        counts: False if the next bundle is smaller, and so has a better chance.
        """
        with self._lock:
            self._in_a_row += counts
            many = self._in_a_row
        if many >= MOST_UNCLEAR:
            return unusable(AGAIN)
        return self._client.wait_until_it_answers(self._resource_type)
