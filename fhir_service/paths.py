"""Test what a path names, and list folders. An unreadable path raises `OSError`; `pathlib` would call it absent."""

import errno
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_NOTHING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Errors that mean that the path names nothing."""
NDJSON = (".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz")
"""Endings of the names of files of reference data."""


def exists(path: Path) -> bool:
    return _mode(path) != 0


def is_file(path: Path) -> bool:
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def is_link(path: Path) -> bool:
    """True for a symbolic link, whatever it leads to."""
    return stat.S_ISLNK(_mode(path, follow=False))


def _mode(path: Path, *, follow: bool = True) -> int:
    """Return kind and permissions of what a path names; 0 if it names nothing."""
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
        return 0


def matching(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the paths below a folder that match a pattern, in order. `**` must be its last part, and matches any path
    below.

    Unlike `Path.glob`, it does not skip unreadable folders.
    """
    part, _, rest = pattern.partition("/")
    for name in sorted(_names_in(folder)):
        path = folder / name
        if part == "**":
            yield path
            yield from () if is_link(path) else matching(path, part)
        elif fnmatchcase(name, part):
            yield from matching(path, rest) if rest else (path,)


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if there is no folder."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
        return []
