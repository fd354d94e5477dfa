"""The log of a DuckDB file (`.wal`), and when it is worked into the file."""

import logging
import os
from pathlib import Path

from sqlalchemy import Engine

from fhir_service.store.raw import raw_of

log = logging.getLogger(__name__)
NEVER = "1TB"
"""Of the log from which on a commit works it into the file: `LogFile.settle` does that, where the disk has room for it.

To fail at it ends the database, as no other failure for want of room does. The log of a killed service is read again at
some 200 MB a second.
"""
MOST_WRITTEN_ANEW = 1 << 30
"""Bytes of the file that are taken to be written anew, at most, when the log is worked in.

One changed row has the rest of its row group written anew. All of them are rarely changed at once.
"""
LONG = 128 << 20
"""Bytes of the log from which on so much of the file is not waited for: what the log has is in memory, too."""
IN_BLOCKS = 12 << 20
"""Bytes that are written beside what changed: the file grows by whole blocks, of which each table takes some. A new
file grew by 9.4 MB for a log of 1.2 MB.
"""
LARGE = 16 << 20
"""Bytes of the log from which on it is worked into the file between two batches: a tenth of a second's work.

Until it is done nobody writes, nor reads what it has of a table: so it is never much. Per row it costs no more than in
larger parts.
"""
JOINED_AT_THE_END = 1
"""Row groups of a table that are made by joining smaller ones near each other, when the process ends.

Each time that the log is worked in makes groups of its own. To join them takes most of a second for a full group, so
that it is not done then. It must be done some time: a process may leave groups of a few rows.
"""


class LogFile:
    """The log of a file that this process owns."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # Its bytes when it could not be worked in: that is tried again once it has as much more.
        self._failed_at = 0
        self._lacks_room = False

    def settle(self, engine: Engine) -> None:
        """Work it into the file where it is long and the disk has room. Only for the writer, between two batches."""
        size = self.size
        if size < self._failed_at:
            # DuckDB worked it in by itself.
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
        """Its bytes; 0 where there is none."""
        return _size_of(self._file.with_name(f"{self._file.name}.wal"))

    def _has_room(self, log_size: int) -> bool:
        """True if the disk has room to work the log into the file; for a long one, if it likely has."""
        disk = os.statvfs(self._file.parent)
        anew = min(_size_of(self._file), MOST_WRITTEN_ANEW) if log_size < LONG else 0
        lacked, needed = self._lacks_room, 2 * log_size + anew + IN_BLOCKS
        self._lacks_room = disk.f_bavail * disk.f_frsize < needed
        if self._lacks_room and not lacked:
            log.warning("the disk of %s needs %d MB of room: its log grows until then", self._file, needed >> 20)
        return not self._lacks_room


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
