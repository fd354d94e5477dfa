"""Logs of processes that run for months, where a large log becomes the older one; and the last line of one."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

LARGEST = 10_000_000
"""Bytes of a log, and of each older one."""
OLDER = 3
"""The older logs that are kept, as `<name>.1` to `<name>.3`."""


LOST_OBJECTS = b"nanobind: "
"""Begins what DuckDB's library says when a process ends: objects that it takes for lost."""


def last_line(said: bytes) -> str | None:
    """Return the last line that a process said, without the mark of an error; None if it said nothing."""
    lines = said.partition(LOST_OBJECTS)[0].decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().removeprefix("Error: ") if lines else None


def rotate(log: Path, largest: int = LARGEST) -> bool:
    """Make a log that is too large the newest older one, and empty it; return True if that was done.

    The log is copied and cut, since the process that writes it keeps it open; it appends, and so goes on at the
    beginning. Lines that it writes between copy and cut are lost. A full disk is no fault here.
    """
    with suppress(OSError):
        if log.stat().st_size <= largest:
            return False
        for number in range(OLDER, 1, -1):
            with suppress(FileNotFoundError):
                Path(f"{log}.{number - 1}").replace(f"{log}.{number}")
        shutil.copyfile(log, f"{log}.1")
        os.truncate(log, 0)
        return True
    return False
