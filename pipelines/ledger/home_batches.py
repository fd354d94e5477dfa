"""The batches of a home: their folders, in which stages read and write, and the store that may hold their files.

A stage's files of a batch are kept before the ledger says that the stage is done.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fhir_service.paths import exists, is_folder, matching
from pipelines.home.batch import ReceivedFile, received_before, source_in
from pipelines.home.batch_files import holds_rows
from pipelines.ledger.lease import Clock

JOURNAL = "journal"
NO_BATCHES = ("_reports", JOURNAL, "lost+found")
COPY = re.compile(r"[0-9]+-([0-9]+)\.ndjson\.gz")
"""The name of a copy of the ledger's journal. Its group is the number of the copy's last line."""


def copies_beyond(names: Iterable[str], number: int) -> list[str]:
    """Return the names of copies with a line `number` or later, in order; none if no copy goes beyond that line."""
    last = {name: int(found[1]) for name in sorted(names) if (found := COPY.fullmatch(name))}
    return [name for name, at in last.items() if at >= number] if max(last.values(), default=0) > number else []


class HomeBatches:
    """The batches of a home that are kept only in its own folder. path: that folder.

    Files of a batch are named by patterns of their paths in its folder, such as `run-1/*`.

    clock: dates the files that come; None for this machine's clock.
    """

    clock: Clock | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Return the names of all batches."""
        folders = self.path.iterdir() if is_folder(self.path) else ()
        return sorted(each.name for each in folders if each.name not in NO_BATCHES and not each.name.startswith("."))

    def folder(self, batch_id: str) -> Path:
        """Return the folder of a batch, with all files that the batch had when first asked for."""
        return self.path / batch_id

    def renew(self, batch_id: str, *files: str) -> Path:
        """Return the folder of a batch, with all its present files, or with those that match."""
        self.bring([batch_id], *files)
        return self.path / batch_id

    def bring(self, batch_ids: Collection[str], *files: str) -> None:
        """Bring all files of these batches, or those that match, into the batches' folders."""

    def received(self, batch_id: str) -> ReceivedFile | None:
        """Return the received file of a batch, which may not be in the folder yet; None if it was purged."""
        return received_before(self.path / batch_id)

    def copied_at(self, batch_id: str) -> datetime | None:
        """Return when the copy of a batch's file was made; None if it was purged. Each time that the file comes, a new
        copy is made.
        """
        try:
            return datetime.fromtimestamp(source_in(self.path / batch_id).stat().st_mtime, UTC)
        except (OSError, StopIteration):
            return None

    def without(self, known: Collection[str]) -> list[ReceivedFile]:
        """Return the received files of all other batches, oldest first. known: the batches that a ledger has."""
        found = (self.received(name) for name in self.names() if name not in known)
        return sorted(filter(None, found), key=lambda each: each.received_at)

    def has_source(self, batch_id: str) -> bool:
        """True if any rows of a batch are in its folder or at the store, so that it was not purged to the end."""
        folder = self.path / batch_id
        return exists(folder / "source") or holds_rows(folder)

    def claim(self, _batch_id: str, _run: str, /) -> bool:
        """Reserve the name of a run's new folder; return False if another run has it."""
        return True

    def keep(self, batch_id: str, *files: str) -> None:
        """Keep these files of a batch's folder; return once they are kept."""

    def agree(self) -> None:
        """Keep batches that only this home has, and remove rows from this home that were purged elsewhere."""

    def keep_journal(self, copy: Callable[[Iterable[str], Path], None]) -> None:
        """Keep copies of the ledger's journal. copy: gets the copies' names, and writes later lines to a folder."""

    @contextmanager
    def journal_beyond(self, number: int) -> Iterator[list[Path]]:
        """Yield the copies of the ledger's journal that `copies_beyond` names."""
        names = (path.name for path in matching(self.path / JOURNAL, "*"))
        yield [self.path / JOURNAL / name for name in copies_beyond(names, number)]

    def remove(self, batch_id: str) -> None:
        """Remove a batch's files from the store, except those without rows."""
