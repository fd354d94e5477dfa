"""Files that are still being written: one that has stopped growing for a moment may be half an export."""

import os
import re
import signal
import sys
from datetime import timedelta
from pathlib import Path

WRITING = "another program still has it open to write; try again when it is complete"
QUIET = timedelta(seconds=10)
"""A file that has not changed for so long has stopped growing: one look is enough."""
MOUNTS = Path("/proc/self/mounts")
LOCAL = frozenset("btrfs ext2 ext3 ext4 f2fs overlay ramfs tmpfs xfs zfs".split())
"""File systems that refuse a read lease for no other reason. Those of networks (NFS, CIFS) have some of their own."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_written(path: Path) -> bool:
    """True if a program of this machine has the file open to write. False where that cannot be told.

    Linux tells it by granting a read lease, at once given back, on files that nobody writes, to their owner. A lease
    that somebody breaks in between ends no process: its signal is one that is ignored by default.
    """
    if sys.platform != "linux":
        return False
    from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, fcntl  # Linux alone has them

    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl(file, F_SETSIG, signal.SIGURG)
        fcntl(file, F_SETLEASE, F_RDLCK)
        fcntl(file, F_SETLEASE, F_UNLCK)
    except BlockingIOError:
        return _file_system(path.resolve()) in LOCAL
    except OSError:  # another's file, or a file system without leases
        return False
    finally:
        os.close(file)
    return False


def _file_system(path: Path) -> str:
    """The type of the file system that a path is on; empty where that cannot be told."""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).splitlines()
    except OSError:
        return ""
    kinds = {_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split()[1]): line.split()[2] for line in lines}
    return kinds.get(max((point for point in kinds if path.is_relative_to(point)), key=len, default=""), "")
