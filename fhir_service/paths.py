"""What a path names. A path that cannot be looked at raises `OSError`: since Python 3.14, `pathlib` says no to it."""

import errno
import stat
from pathlib import Path

_NOTHING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Errors that say that there is nothing by this name."""


def exists(path: Path) -> bool:
    return _mode(path) != 0


def is_file(path: Path) -> bool:
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def is_link(path: Path) -> bool:
    """True for a symbolic link, whatever is at its end."""
    return stat.S_ISLNK(_mode(path, follow=False))


def _mode(path: Path, *, follow: bool = True) -> int:
    """Return the kind and the permissions of what a path names; 0 where there is nothing."""
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
        return 0
