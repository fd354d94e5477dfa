"""Ids that the service issues: UUIDs of version 7, which begin with their time (RFC 9562, section 5.7).

Resources that are stored together have neighbouring ids, so that an index on ids grows only at its end.
An id shows when its resource was made, as `meta.lastUpdated` does. Ids are no secrets, and no secret is made of them.
"""

import os
import threading
from time import time_ns

_PARTS = [f"-7{part:03x}-" for part in range(1 << 12)]
"""The group of a UUID after the milliseconds: version 7, and a fraction of a millisecond."""
_VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))
"""For each byte: the byte with the UUID's variant in its first two bits."""


def _ticks() -> int:
    """Return the time in 4096ths of a millisecond: 48 bits of milliseconds, and 12 bits of fraction."""
    return (time_ns() << 12) // 1_000_000


class OrderedIds:
    """A source of ids. Each is greater than all before it, even if the clock is set back. For any thread."""

    def __init__(self, at_once: int = 512) -> None:
        """at_once: get random bytes for so many ids by one system call, which costs more than making an id."""
        self._at_once = at_once
        self._tails: list[str] = []
        self._last = 0
        self._head = (-1, "")
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if not self._tails:
                self._tails = _tails(self._at_once)
            last = _ticks()
            if last <= self._last:
                last = self._last + 1
            self._last = last
            if self._head[0] != (milliseconds := last >> 12):
                self._head = milliseconds, f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}"
            return self._head[1] + _PARTS[last & 0xFFF] + self._tails.pop()


def _tails(number: int) -> list[str]:
    """Return the rest of each id after its time: the variant and 62 random bits."""
    beginnings = bytearray(os.urandom(2 * number))
    beginnings[::2] = beginnings[::2].translate(_VARIANT)
    # `hex` separates the ids. Slicing one long text would take three times as long.
    parts = beginnings.hex("|", 2).split("|"), os.urandom(6 * number).hex("|", 6).split("|")
    return list(map("-".join, zip(*parts, strict=True)))


new_id = OrderedIds()
