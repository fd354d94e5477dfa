"""Logs of processes that run for months: move a large log aside, and find the last line of an output."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

LARGEST = 10_000_000
"""The most bytes of a log, and of each older one."""
OLDER = 3
"""The number of older logs that are kept, as `<name>.1` to `<name>.3`."""


LOST_OBJECTS = b"nanobind: "
"""The beginning of DuckDB's output when a process ends, about objects that it takes for lost."""


def last_line(said: bytes) -> str | None:
    """Return the last line of a process's output, without the mark of an error; None if there is none."""
    lines = said.partition(LOST_OBJECTS)[0].decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().removeprefix("Error: ") if lines else None


def rotate(log: Path, largest: int = LARGEST) -> bool:
    """If a log is too large, copy it to the newest older one and empty it; return True if that was done.

    The log is copied and cut, since the process that writes it keeps it open. That process appends, and so continues
    at the beginning. Lines that it writes between copy and cut are lost. A full disk is ignored.
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
