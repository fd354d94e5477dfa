"""A received file: one batch, named by its feed and the hash of its bytes. Shared by the stages."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


class Unreadable(Exception):
    """A file that cannot be read as a whole. The message is one sentence: the file, what is wrong, what to do."""


@dataclass(frozen=True, slots=True)
class Received:
    """A file in its batch.

    path_in_batch: the copy that the stages read; `sha256` and `size` (bytes) are those of the file as it came.
    received_at: when it was taken in, aware.
    """

    batch_id: str
    sha256: str
    path_in_batch: Path
    file_name: str
    size: int
    received_at: datetime


def shown(name: str | Path) -> str:
    """A file's name, or its path, as text on one line: what is no text in it (other bytes, line breaks) as escapes."""
    text = str(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
