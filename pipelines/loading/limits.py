"""Bounds of a target that a load finds out: the size of a bundle that it takes, and how often it may be in trouble."""

from collections.abc import Sequence
from threading import Lock

from pipelines.client.client import FhirClient
from pipelines.client.replies import TargetUnusable

MOST_UNCLEAR = 3
"""Bundles in a row without a clear answer, after which the target counts as unusable."""


class Sizes:
    """The bundle size (characters) that the target takes, learned from its answers. Safe for several threads."""

    def __init__(self) -> None:
        self._taken, self._too_large = 0, 0

    def took(self, size: int) -> None:
        self._taken = max(self._taken, size)

    def found_too_large(self, size: int) -> None:
        self._too_large = min(self._too_large or size, size)
        self._taken = self._taken if self._taken < self._too_large else 0

    def parts(self, places: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
        """The places in bundles of a size that should be taken; all in one while none was too large."""
        most = max(self._taken, self._too_large // 2) if self._too_large else sum(sizes)
        parts: list[list[int]] = []
        room = 0
        for at in places:
            if not parts or sizes[at] > room:
                parts.append([])
                room = most
            parts[-1].append(at)
            room -= sizes[at]
        return parts


class Trouble:
    """Bundles without a clear answer, one after another: each waits until the target answers a search."""

    def __init__(self, client: FhirClient, resource_type: str) -> None:
        self._client, self._resource_type, self._in_a_row = client, resource_type, 0
        self._lock = Lock()

    def is_over(self) -> None:
        self._in_a_row = 0

    def met(self) -> str | None:
        """Wait for the target; return the sentence that ends the load where it does not come back."""
        with self._lock:
            self._in_a_row += 1
            many = self._in_a_row
        if many >= MOST_UNCLEAR:
            return "the target could not be used: no clear answer, again and again"
        try:
            self._client.wait_until_it_answers(self._resource_type)
        except TargetUnusable as error:
            return str(error)
        return None
