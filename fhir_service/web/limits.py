"""Rate limits of clients: a bucket of tokens for each, filled steadily."""

import math
from collections.abc import Callable


class Rates:
    """Takes a token per request; with no rate set, every request passes."""

    def __init__(self, per_second: float | None, clock: Callable[[], float]) -> None:
        self._rate, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> int:
        """0 when the request passes, else the whole seconds to wait."""
        if self._rate is None:
            return 0
        now, most = self._clock(), max(self._rate, 1.0)
        tokens, then = self._buckets.get(client, (most, now))
        tokens = min(most, tokens + (now - then) * self._rate)
        passes = tokens >= 1
        self._buckets[client] = (tokens - 1 if passes else tokens, now)
        return 0 if passes else max(1, math.ceil((1 - tokens) / self._rate))
