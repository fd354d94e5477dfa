"""A full disk, whichever library met it: known by what it says, told in one sentence."""

import errno
from collections.abc import Iterator

FULL = "there is no space left on the disk; make room, and the same command goes on where it ended"
_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TEXTS = ("no space left on device", "disk is full", "disk full", "disk quota exceeded", "file too large")


def is_full(error: BaseException) -> bool:
    """True if an exception, or one behind it, comes of a disk without space."""
    return any(
        getattr(each, "errno", None) in _NUMBERS or any(text in str(each).lower() for text in _TEXTS)
        for each in _behind(error)
    )


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
