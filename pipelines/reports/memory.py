"""The memory of a publication: more where there are more records, and where less was not enough."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import func, select

from pipelines.home.files import MEMORY
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.reports.publication import OutOfMemory

T = TypeVar("T")
MEGABYTE = 10**6
GROWTH = 4
BYTES_A_RECORD = 400
"""As a million payments of one file take."""
CONTAINER = Path("/sys/fs/cgroup/memory.max")


def within_memory(ledger: Ledger, build: Callable[[int], T]) -> T:
    """Build tables in as many megabytes as the ledger's records want; in four times as many where these do not do.

    No more than half of what the machine has, or the container. Raises as `build` does, whose argument they are.
    """
    [(records,)] = ledger.read(select(func.count()).select_from(t.record))
    most, megabytes = most_memory(), MEMORY
    while megabytes < most and megabytes * MEGABYTE < records * BYTES_A_RECORD:
        megabytes = min(megabytes * GROWTH, most)
    while True:
        try:
            return build(megabytes)
        except OutOfMemory:
            if megabytes >= most:
                raise
            megabytes = min(megabytes * GROWTH, most)


def most_memory() -> int:
    """Return half of the megabytes that this machine has, or its container may take."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # there is no container, or it may take all
        found = min(found, int(CONTAINER.read_text()))
    return found // 2 // MEGABYTE
