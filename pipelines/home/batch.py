"""A received file: one batch, named by its feed and the hash of its bytes, and the batch's folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipelines.home.exits import WronglyAsked

CONTROL = ".control.json"
SOURCE = ("sha256", "source/*")
"""Patterns of the files of a batch that came with its file."""
BESIDE_FILE = ("sha256", f"source/*{CONTROL}")
"""Those of `SOURCE` without the file itself."""


class UnreadableFile(WronglyAsked):
    """A file that cannot be read as a whole. The text is one sentence: the file, the problem, what to do."""


@contextmanager
def reading_file(name: str, failure: type[Exception] = UnreadableFile) -> Iterator[None]:
    """Turn the failure to read a file into a sentence with its name."""
    try:
        yield
    except OSError as error:
        raise failure(f"{name}: cannot be read: {reason_of(error)}") from None


def reason_of(error: OSError) -> str:
    """Return the words for an error of the system."""
    return error.strerror or type(error).__name__


class NotReadToItsEnd(UnreadableFile):
    """This program failed on a file, or had too little memory for it. The file may be fine."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file in its batch.

    path_in_batch: the copy that the stages read; `sha256` and `size` (bytes) are of the file as it came. received_at:
    when it was taken in, with its zone.
    """

    batch_id: str
    sha256: str
    path_in_batch: Path
    file_name: str
    size: int
    received_at: datetime


def batch_name(feed: str, sha256: str) -> str:
    """Return the name of a batch, made of its feed and the hash of its file."""
    return f"{feed}-{sha256[:12]}"


def printable_name(name: str | Path) -> str:
    """Return a file's name or path as text on one line; other bytes, line breaks and the like become escapes."""
    text = str(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def control_of(file: Path) -> Path:
    """Return the path of the control totals of a file."""
    return file.with_name(file.name + CONTROL)


def is_control(file_name: str) -> bool:
    """True if a file, by its name, contains the control totals of another file."""
    return file_name.endswith(CONTROL)


def received_before(folder: Path) -> ReceivedFile | None:
    """Return the file of a batch folder; None if there is none (purged, or not a batch).

    The file's time is that of the file `sha256`: the copy is made anew each time that the file comes.
    """
    try:
        sha256, time = (folder / "sha256").read_text(errors="replace").strip(), came(folder)
        path = source_in(folder)
    except (OSError, StopIteration):
        return None
    about = path.stat()
    return ReceivedFile(folder.name, sha256, path, printable_name(path.name), about.st_size, time)


def source_in(folder: Path) -> Path:
    """Return the copy of the file in a batch folder. Raises `OSError` or `StopIteration` if there is none."""
    return next(path for path in sorted((folder / "source").iterdir()) if not is_control(path.name))


def came(folder: Path) -> datetime:
    """Return when the file of a batch came. Raises `OSError` if that is unknown."""
    return datetime.fromtimestamp((folder / "sha256").stat().st_mtime, UTC)
