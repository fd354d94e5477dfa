"""A bound on the bodies that a process has in hand, from their first byte until they are answered."""

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

LARGEST_BODIES = 4
"""So many of the largest bundles may be in hand."""
FREE = 64 << 10
"""The weight up to which a body is not counted: none that is usual is refused for others that are large."""
VALUE = 100
"""The bytes in memory of a value that was parsed: of a number in a list, which may take two bytes of a text."""


def weight(raw: bytes) -> int:
    """Return the bytes that a JSON text and its value take in memory, about."""
    return len(raw) + VALUE * (raw.count(b",") + raw.count(b"{") + raw.count(b"["))


class InHand:
    """The weight that may be held yet (`left`). Used by the thread that serves alone.

    largest: no body weighs more, so that each can be taken when nothing else is held.
    """

    def __init__(self, largest: int) -> None:
        self.largest, self.left = largest, LARGEST_BODIES * largest


class Share:
    """The weight that the body of one request has of what may be in hand."""

    def __init__(self, of: InHand) -> None:
        self._of, self._held = of, 0

    def hold(self, whole: int) -> None:
        """Hold a weight for the body so far. Raises FhirError(UNAVAILABLE) where there is no room for it."""
        if whole <= FREE:
            return
        more = min(whole, self._of.largest) - self._held
        if more > self._of.left:
            headers = {"retry-after": "5", "connection": "close"}
            raise FhirError(UNAVAILABLE, "too many large bodies are under way", headers=headers)
        self._of.left -= more
        self._held += more

    def release(self) -> None:
        self._of.left += self._held
        self._held = 0
