"""Work on a file: with helper processes for a large one, and a folder for what comes in between."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.home.collecting import seldom
from pipelines.home.scratch import workspace
from pipelines.validation.side_by_side import SideBySide, processes_for


@contextmanager
def at_work(folder: Path, size: int, processes: int | None) -> Iterator[tuple[Path, SideBySide]]:
    """A folder within another one that is gone at the end, and the processes that work on a file of so many bytes."""
    helpers = processes_for(size) if processes is None else processes
    with seldom(), workspace(folder) as inner, SideBySide(helpers) as work:
        yield inner, work
