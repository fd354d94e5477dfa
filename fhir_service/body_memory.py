"""A bound on the memory of request bodies, from their first byte until they are answered."""

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

LARGEST_BODIES = 4
"""The bound is the weight of so many of the largest bundles."""
FREE = 64 << 10
"""A body up to this weight is not counted: usual bodies are never refused because of large ones."""
VALUE = 100
"""The bytes in memory of a parsed value, such as a number in a list, which may take two bytes of the text."""


def weight(raw: bytes) -> int:
    """Return the approximate bytes in memory of a JSON text and its parsed value."""
    return len(raw) + VALUE * (raw.count(b",") + raw.count(b"{") + raw.count(b"["))


class InHand:
    """The weight that may still be held (`left`). Only for the thread of the event loop.

    largest: no body counts for more than this, so that any body is accepted while nothing else is held.
    """

    def __init__(self, largest: int) -> None:
        self.largest, self.left = largest, LARGEST_BODIES * largest


class BodyShare:
    """The weight that the body of one request holds."""

    def __init__(self, of: InHand) -> None:
        self._of, self._held = of, 0

    def hold(self, whole: int) -> None:
        """Hold the weight of the body so far. Raises FhirError(UNAVAILABLE) if others hold too much."""
        if whole <= FREE:
            return
        more = min(whole, self._of.largest) - self._held
        if more > self._of.left:
            headers = {"retry-after": "5", "connection": "close"}
            raise FhirError(UNAVAILABLE, "too many large requests are under way: try again later", headers=headers)
        self._of.left -= more
        self._held += more

    def release(self) -> None:
        self._of.left += self._held
        self._held = 0
