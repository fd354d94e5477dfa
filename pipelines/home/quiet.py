"""Files that have stopped growing, as one look can tell; and which file systems are of this machine."""

import os
import re
from datetime import timedelta
from pathlib import Path

CLOCKS_APART = timedelta(hours=1)
"""By how much less a clock of another machine may be wrong."""
MOUNTS = Path("/proc/self/mounts")
LOCAL = frozenset("btrfs ext2 ext3 ext4 f2fs overlay ramfs tmpfs xfs zfs".split())
"""File systems that refuse a read lease for no other reason than a writer, and have the times of this machine's clock.
Those of networks (NFS, CIFS) have some of their own."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_quiet(path: Path, changed: float, now: float, quiet: timedelta) -> bool:
    """True if one look shows that a file has not changed for some time; else two looks must see it unchanged.

    changed, now: in Unix seconds. A file server whose clock is minutes behind shows a file that is just being written
    as an old one, so there it must be older by far. A time that lies ahead is no proof either.
    """
    seconds = now - changed
    if seconds < quiet.total_seconds():
        return False
    return seconds >= CLOCKS_APART.total_seconds() or is_on_this_machine(path)


def is_on_this_machine(path: Path) -> bool:
    """True if a file is surely on a disk of this machine."""
    return _file_system(path.resolve()) in LOCAL


def _file_system(path: Path) -> str:
    """The type of the file system that a path is on; empty where that cannot be told."""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).splitlines()
    except OSError:
        return ""
    kinds = {_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split()[1]): line.split()[2] for line in lines}
    return kinds.get(max((point for point in kinds if path.is_relative_to(point)), key=len, default=""), "")
