"""A bound on the bytes of the bundles that a process has in hand, from their first byte to their answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

BUNDLES = 4
"""So many of the largest bundles may be in hand."""


class InHand:
    """The bytes that may be held yet (`left`). Used by the thread that serves alone."""

    def __init__(self, most: int) -> None:
        self.left = most

    @contextmanager
    def held(self) -> Iterator[Callable[[int], None]]:
        """Yield the function that holds more bytes, until the block ends. It raises FhirError(UNAVAILABLE)."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if size > self.left:
                headers = {"retry-after": "5", "connection": "close"}
                raise FhirError(UNAVAILABLE, "too many large bundles are under way", headers=headers)
            self.left -= size
            held += size

        try:
            yield hold
        finally:
            self.left += held
