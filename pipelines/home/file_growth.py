"""Decide if a file has stopped growing, since a file that stops for a moment may be half an export.

One look decides it, also by the programs that have the file open and if its file system is of this machine.
"""

import os
import re
import signal
import sys
from datetime import timedelta
from pathlib import Path

CLOCKS_APART = timedelta(hours=1)
"""The error of another machine's clock is assumed to be less than this."""
MOUNTS = Path("/proc/self/mounts")
LOCAL = frozenset("btrfs ext2 ext3 ext4 f2fs overlay ramfs tmpfs xfs zfs".split())
"""File systems that refuse a read lease only because of a writer, and whose times are by this machine's clock. Network
file systems (NFS, CIFS) have other reasons and clocks.
"""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_quiet(path: Path, changed: float, now: float, quiet: timedelta) -> bool:
    """True if one look shows that a file has not changed for some time; else two looks must see it unchanged.

    changed, now: in Unix seconds. A file server whose clock is minutes behind shows a file that is being written as an
    old one. So a file there must be much older. A time in the future is no proof either.
    """
    seconds = now - changed
    if seconds < quiet.total_seconds():
        return False
    return seconds >= CLOCKS_APART.total_seconds() or is_on_this_machine(path)


def is_on_this_machine(path: Path) -> bool:
    """True if a file is surely on a disk of this machine."""
    return _file_system(path.resolve()) in LOCAL


def _file_system(path: Path) -> str:
    """Return the type of a path's file system; empty text if it is unknown."""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).splitlines()
    except OSError:
        return ""
    kinds = {_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split()[1]): line.split()[2] for line in lines}
    return kinds.get(max((point for point in kinds if path.is_relative_to(point)), key=len, default=""), "")


WRITING = "another program still has it open to write; try again when it is complete"
QUIET = timedelta(seconds=10)
"""A file that has not changed for this long has stopped growing: one look is enough."""


def is_written(path: Path) -> bool:
    """True if a program of this machine has the file open for writing. False if that cannot be found out.

    Linux shows it by granting a read lease, which is given back at once. It grants one only to the owner, and only on a
    file that nobody has open for writing. If a program breaks the lease in between, no process ends: its signal is one
    that is ignored by default.
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
        return is_on_this_machine(path)
    except OSError:  # another user's file, or a file system without leases
        return False
    finally:
        os.close(file)
    return False
