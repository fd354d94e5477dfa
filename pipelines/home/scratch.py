"""Scratch: folders under `<home>/scratch`, removed by the command that made them, or after a kill by the next command.

While a command works, copies of patient data are nowhere else. Each folder is locked by its process.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fhir_service.paths import exists, is_folder, is_link, matching
from pipelines.home.files import locked_folder

SCRATCH = "scratch"
FORMERLY = (".rehearsal-*", ".dry-run-*", ".rejects-*", "batches/.incoming-*")
"""The places of such folders and files in earlier versions."""
HELD = ".held"
TRIES = 100
PAUSE_SECONDS = 0.1


@contextmanager
def throwaway_folder(home: Path) -> Iterator[Path]:
    """A folder under the home, for the owner only, where copies of patient data may be. It is removed at the end."""
    with locked_folder(home):
        _remove_leftovers(home)
        (home / SCRATCH).mkdir(mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=home / SCRATCH))
        held = os.open(folder / HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(held)
        with locked_folder(home), suppress(OSError):
            (home / SCRATCH).rmdir()  # fails if other commands use it


def remove_leftovers(home: Path) -> None:
    """Remove what ended processes left in scratch, whatever its name."""
    if any(_leftovers(home)):
        with locked_folder(home):
            _remove_leftovers(home)


def _leftovers(home: Path) -> Iterator[Path]:
    for place in (f"{SCRATCH}/*", *FORMERLY):
        yield from matching(home, place)


def _remove_leftovers(home: Path) -> None:
    for path in list(_leftovers(home)):
        if not _is_held(path / HELD):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a path. Try again for a moment, since a service that is ending may still write into a folder."""
    for _ in range(TRIES):
        if is_folder(path) and not is_link(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if not exists(path):
            return
        time.sleep(PAUSE_SECONDS)


def _is_held(place: Path) -> bool:
    """True if a running process holds this file or folder: its lock ends with it."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


# -- the workspace of a run

WORKSPACE = ".spill"


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A subfolder for temporary files, removed at the end. After a kill, `remove_abandoned` removes it."""
    with locked_folder(folder):
        inner = folder / WORKSPACE
        inner.mkdir(mode=0o700, exist_ok=True)
        try:
            yield inner
        finally:
            shutil.rmtree(inner, ignore_errors=True)


def remove_abandoned(folders: Iterable[Path]) -> None:
    """Remove the workspaces in these folders whose process has ended, and its half-written files."""
    for folder in folders:
        if exists(folder / WORKSPACE) and not _is_held(folder):
            for part in matching(folder, "*.part"):
                part.unlink(missing_ok=True)
            _remove(folder / WORKSPACE)
