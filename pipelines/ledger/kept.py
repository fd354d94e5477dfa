"""The batches of a home: their folders, in which stages read and write, and where else their files are kept.

What a stage makes of a batch is kept before the ledger says that the stage is done.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pipelines.home.batch import Received, received_before, source_in
from pipelines.home.batch_files import holds_rows
from pipelines.home.paths import exists, is_folder, matching
from pipelines.ledger.lease import Clock

JOURNAL = "journal"
NO_BATCHES = ("_reports", JOURNAL, "lost+found")
COPY = re.compile(r"[0-9]+-([0-9]+)\.ndjson\.gz")
"""The name of a copy of the ledger's journal, and in it the number of its last line."""


def copies_beyond(names: Iterable[str], number: int) -> list[str]:
    """Return the names of copies of a journal that hold a line or later ones, in order; none if that is the last."""
    last = {name: int(found[1]) for name in sorted(names) if (found := COPY.fullmatch(name))}
    return [name for name, at in last.items() if at >= number] if max(last.values(), default=0) > number else []


class Batches:
    """The batches of a home, which are kept in its own folder alone. path: that folder.

    Files of a batch are named by patterns of their paths in its folder, such as `run-1/*`.

    clock: by which files that come are dated; None for this machine's.
    """

    clock: Clock | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Return the batches that there are, by name."""
        folders = self.path.iterdir() if is_folder(self.path) else ()
        return sorted(each.name for each in folders if each.name not in NO_BATCHES and not each.name.startswith("."))

    def folder(self, batch_id: str) -> Path:
        """Return the folder of a batch, with all files that it had when it was first asked for."""
        return self.path / batch_id

    def renew(self, batch_id: str, *files: str) -> Path:
        """Return the folder of a batch, with all files that it has now, or with these."""
        self.bring([batch_id], *files)
        return self.path / batch_id

    def bring(self, batch_ids: Collection[str], *files: str) -> None:
        """Make sure that these files of batches, or all, are in their folders."""

    def received(self, batch_id: str) -> Received | None:
        """Return the file of a batch, which may not be here yet; None where it was purged."""
        return received_before(self.path / batch_id)

    def copied_at(self, batch_id: str) -> datetime | None:
        """Return when the copy of a batch's file was made, which is a new one each time that the file comes; None
        where it was purged.
        """
        try:
            return datetime.fromtimestamp(source_in(self.path / batch_id).stat().st_mtime, UTC)
        except (OSError, StopIteration):
            return None

    def without(self, known: Collection[str]) -> list[Received]:
        """Return the files of all batches but these, oldest first: none of them is in a ledger that knows these."""
        found = (self.received(name) for name in self.names() if name not in known)
        return sorted(filter(None, found), key=lambda each: each.received_at)

    def has_source(self, batch_id: str) -> bool:
        """True if any rows of a batch are here, or kept: it was not purged, or not to the end."""
        folder = self.path / batch_id
        return exists(folder / "source") or holds_rows(folder)

    def claim(self, _batch_id: str, _run: str, /) -> bool:
        """Take the name of a run's folder, which was just made; False if another run has it."""
        return True

    def keep(self, batch_id: str, *files: str) -> None:
        """Return once these files of a batch's folder are kept."""

    def agree(self) -> None:
        """Keep batches that are in this home alone, and remove rows from it that were purged elsewhere."""

    def keep_journal(self, copy: Callable[[Iterable[str], Path], None]) -> None:
        """Keep copies of the ledger's journal. copy: writes what is beyond copies of these names to a folder."""

    @contextmanager
    def journal_beyond(self, number: int) -> Iterator[list[Path]]:
        """Yield the copies of the ledger's journal that `copies_beyond` names."""
        names = (path.name for path in matching(self.path / JOURNAL, "*"))
        yield [self.path / JOURNAL / name for name in copies_beyond(names, number)]

    def remove(self, batch_id: str) -> None:
        """Remove a batch's files from where they are kept beside its folder, but for those without a row."""
