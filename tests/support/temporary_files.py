"""Temporary files of tests in memory, if there is room: tests then wait for no disk."""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - of a system that has it
BYTES = 4 << 30
"""The least free bytes. Containers often have 64 MB only."""


def keep_files_in_memory() -> None:
    """Let this process, and those that it starts, make temporary files in memory, unless `TMPDIR` names a folder.

    Programs are run from there, too: copies of PostgreSQL's binaries, if its user cannot read the original folder.
    """
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # forget the folder that an earlier call may have cached


def _has_room(folder: Path) -> bool:
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    runs_programs = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return runs_programs and shutil.disk_usage(folder).free > BYTES
