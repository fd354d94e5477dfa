"""The write-ahead log of a DuckDB file (`.wal`), and when a checkpoint writes it into the file."""

import logging
import os
from pathlib import Path

from sqlalchemy import Engine

from fhir_service.store.duckdb_raw import raw_of

log = logging.getLogger(__name__)
NEVER = "1TB"
"""The size of the log at which DuckDB itself makes a checkpoint: never. `LogFile.settle` makes them.

A checkpoint that fails on a full disk ends the database; nothing else that fails there does. So `settle` looks for room
first. After a kill, the service reads the log again at some 200 MB a second.
"""
MOST_WRITTEN_ANEW = 1 << 30
"""The most bytes of the file that a checkpoint is expected to write again.

For one changed row it writes the rest of its row group. All row groups are rarely changed at once.
"""
LONG = 128 << 20
"""A log of so many bytes no longer waits for room for `MOST_WRITTEN_ANEW`: the log takes memory, too."""
IN_BLOCKS = 12 << 20
"""Bytes that a checkpoint writes beside the changes: the file grows by whole blocks, some for each table. A new file
grew by 9.4 MB for a log of 1.2 MB.
"""
LARGE = 16 << 20
"""A log of so many bytes gets a checkpoint between two batches, which takes a tenth of a second.

Meanwhile nobody can write, or read the tables in the log. Larger logs would cost as much per row, and hold others up
for longer.
"""
JOINED_AT_THE_END = 1
"""The row groups that the checkpoint at the end of the process may make of smaller neighbours (`max_vacuum_tasks`).

Each checkpoint adds row groups of its own. Joining them into a full group takes most of a second, so that other
checkpoints do not do it. It has to be done some time: a process may leave groups of a few rows.
"""


class LogFile:
    """The write-ahead log of a file that this process owns."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # The size of the log at the last failed checkpoint. The next one is tried when it has grown by `LARGE`.
        self._failed_at = 0
        self._lacks_room = False

    def settle(self, engine: Engine) -> None:
        """Make a checkpoint if the log is large and the disk has room. For the writer only, between two batches."""
        size = self.size
        if size < self._failed_at:
            # The log became shorter: DuckDB made a checkpoint by itself.
            self._failed_at = 0
        if size < self._failed_at + LARGE or not self._has_room(size):
            return
        self._failed_at = size
        with engine.connect() as connection:
            raw = raw_of(connection)
            raw.execute("SET GLOBAL max_vacuum_tasks = 0")
            try:
                raw.execute("CHECKPOINT")
            finally:
                raw.execute(f"SET GLOBAL max_vacuum_tasks = {JOINED_AT_THE_END}")
        self._failed_at = 0

    @property
    def size(self) -> int:
        """The size of the log in bytes; 0 if there is none."""
        return _size_of(self._file.with_name(f"{self._file.name}.wal"))

    def _has_room(self, log_size: int) -> bool:
        """True if the disk has room for a checkpoint. For a long log a smaller reserve will do."""
        disk = os.statvfs(self._file.parent)
        anew = min(_size_of(self._file), MOST_WRITTEN_ANEW) if log_size < LONG else 0
        lacked, needed = self._lacks_room, 2 * log_size + anew + IN_BLOCKS
        self._lacks_room = disk.f_bavail * disk.f_frsize < needed
        if self._lacks_room and not lacked:
            log.warning(
                "the disk of %s needs %d MB of free space: until then the log of the store grows",
                self._file,
                needed >> 20,
            )
        return not self._lacks_room


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
