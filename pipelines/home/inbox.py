"""The inbox and the links in it. A link may lead to files in the inbox, or into folders that a setting names.

A setting may name a second inbox beyond the home: see `objects.py`.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from fhir_service.paths import is_link
from pipelines.home.batch import UnreadableFile, printable_name

SETTING = "CHARTFERRY_INBOX_LINKS"
BEYOND = "CHARTFERRY_INBOX"
"""The place of further exports: a folder that is only read, or a prefix of an object store."""
BATCHES = "CHARTFERRY_BATCHES"
"""The place of the batches: a folder, or a prefix of an object store. If unset, they are only in the home."""
LEADS_OUT = (
    "a link that leads out of the inbox: put the file itself there, or let the setting"
    f" {SETTING} name the folder that it is in"
)
SWAPPED = "the file was replaced while it was read; try again when it is complete"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True)
class Inbox:
    """The folder of waiting exports. links: folders outside of it into which its links may lead.

    beyond: the place of further exports. batches: the place of batches, beside which taken exports are noted.
    """

    folder: Path
    links: tuple[Path, ...] = ()
    beyond: str | None = None
    batches: str | None = None

    @classmethod
    def of(cls, home: Path, environ: Mapping[str, str]) -> Self:
        """Return the inbox of a home, with the folders that the environment names."""
        named = environ.get(SETTING, "").split(os.pathsep)
        links = tuple(Path(name) for name in named if name)
        return cls(home / "inbox", links, environ.get(BEYOND) or None, environ.get(BATCHES) or None)

    def holds(self, path: Path) -> bool:
        """True if a file or a link is in the inbox, wherever the link leads."""
        return path.parent.resolve() == self.folder.resolve()

    def refuses(self, path: Path) -> bool:
        """True for a link in the inbox that leads to a forbidden place."""
        return is_link(path) and self.holds(path) and self._root(Path(os.path.realpath(path))) is None

    @contextmanager
    def open(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a file to read. Raises `OSError`, and Unreadable for a link of the inbox that leads out of it.

        The path is resolved once, and opened from its allowed folder down without following links. So a link that is
        changed meanwhile leads nowhere else.
        """
        if not self.holds(path):
            with path.open("rb") as file:
                yield file
            return
        place = Path(os.path.realpath(path, strict=True))  # a loop of links raises OSError there
        root = self._root(place)
        if root is None:
            raise UnreadableFile(f"{printable_name(path.name)}: {LEADS_OUT}")
        with os.fdopen(_open_below(root, place, path.name), "rb") as file:
            yield file

    def _root(self, place: Path) -> Path | None:
        """Return the folder, without links, through which a path may be read; None if there is none."""
        roots = (folder.resolve() for folder in (self.folder, *self.links))
        return next((root for root in roots if place != root and place.is_relative_to(root)), None)


def _open_below(root: Path, place: Path, name: str) -> int:
    """Open a path without links below a folder. Raises Unreadable if one of its parts has become a link."""
    *folders, last = place.relative_to(root).parts
    at = os.open(root, FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, FOLDER, dir_fd=at)
            os.close(at)
            at = below
        return os.open(last, FILE, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnreadableFile(f"{printable_name(name)}: {SWAPPED}") from None
        raise
    finally:
        os.close(at)
