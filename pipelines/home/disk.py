"""Recognize a full disk, whichever library met it, by the error's number or text, and report it in one sentence."""

import errno
from collections.abc import Iterator

from pipelines.home.exits import ExplainedError

FULL = "there is no space left on the disk; make room, and the same command goes on where it ended"
_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TEXTS = ("no space left on device", "disk is full", "disk full", "disk quota exceeded", "file too large")


_NO_ROOM_BESIDE = "SQLITE_IOERR_SHMSIZE"
"""SQLite's error for a file beside the database that cannot be made large enough. Its text is "disk I/O error"."""


def is_full(error: BaseException) -> bool:
    """True if an exception, or one of its causes, comes from a disk without space."""
    return any(_says_so(each) for each in _behind(error))


def _says_so(error: BaseException) -> bool:
    """True by the error's number. Texts count only for errors without one and not our own: paths contain words."""
    if (number := getattr(error, "errno", None)) is not None or isinstance(error, ExplainedError):
        return number in _NUMBERS
    if getattr(error, "sqlite_errorname", None) == _NO_ROOM_BESIDE:
        return True
    return any(text in str(error).lower() for text in _TEXTS)


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
