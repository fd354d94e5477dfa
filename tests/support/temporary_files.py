"""Temporary files of tests in memory, where the system has room for them: a test waits for no disk."""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - of a system that has it
BYTES = 4 << 30
"""Free bytes from which on there is room; containers often give 64 MB."""


def keep_files_in_memory() -> None:
    """Let this process, and those that it starts, make temporary files in memory, unless `TMPDIR` names a folder.

    Programs are run from there too: a server of PostgreSQL whose own place is closed to its user.
    """
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # asked for again, in case that it was asked for before


def _has_room(folder: Path) -> bool:
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    runs_programs = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return runs_programs and shutil.disk_usage(folder).free > BYTES
