"""Send objects through a pipe, each as its length and its pickle: one write and one read each, if the pipe can hold
them.

With writes of 64 KiB, a thread would release the interpreter at each, and wait for it as long as another one computes.
"""

import os
import pickle
from contextlib import suppress
from typing import Any

ROOM = 1 << 20
"""Bytes to enlarge a pipe to, if the system allows it."""
LENGTH = 8


def widen(pipe: int) -> None:
    """Enlarge a pipe to `ROOM` bytes, if the system allows it."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)


def send(pipe: int, given: Any) -> None:
    """Write an object to a pipe, as its length and its pickle. Raises OSError."""
    body = pickle.dumps(given, pickle.HIGHEST_PROTOCOL)
    left = memoryview(len(body).to_bytes(LENGTH, "big") + body)
    while left:
        left = left[os.write(pipe, left) :]


def receive(pipe: int) -> Any:
    """Read an object from a pipe of this program. Raises EOFError at its end, OSError, unpickling errors."""
    return pickle.loads(_read(pipe, int.from_bytes(_read(pipe, LENGTH), "big")))  # noqa: S301


def _read(pipe: int, size: int) -> bytearray:
    found = bytearray(size)
    left = memoryview(found)
    while left:
        count = os.readv(pipe, [left])
        if not count:
            raise EOFError
        left = left[count:]
    return found
