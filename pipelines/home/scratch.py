"""Scratch: folders under `<home>/scratch` that end with the command that made them, after a kill with the next command.

Copies of patient data lie nowhere else while a command works. Each folder is locked by its process.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.home.files import locked_folder
from pipelines.home.paths import exists, is_folder, is_link, matching

SCRATCH = "scratch"
FORMERLY = (".rehearsal-*", ".dry-run-*", ".rejects-*", "batches/.incoming-*")
"""The places of such folders and files in earlier versions."""
HELD = ".held"
TRIES = 100
PAUSE_SECONDS = 0.1


@contextmanager
def throwaway_folder(home: Path) -> Iterator[Path]:
    """A folder for the owner only, under the home, where copies of patient data may lie. It is gone at the end."""
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
            (home / SCRATCH).rmdir()  # unless others are at work


def remove_leftovers(home: Path) -> None:
    """Remove what processes that have ended left in scratch, whatever its name."""
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
    """A service that is just ending may still write into a folder: tried again for a moment."""
    for _ in range(TRIES):
        if is_folder(path) and not is_link(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if not exists(path):
            return
        time.sleep(PAUSE_SECONDS)


def _is_held(place: Path) -> bool:
    """True if a process that runs holds this file or folder: its lock ends with it."""
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
    """A folder within this one, for what is gone at the end: `remove_abandoned` removes what a killed process left."""
    with locked_folder(folder):
        inner = folder / WORKSPACE
        inner.mkdir(mode=0o700, exist_ok=True)
        try:
            yield inner
        finally:
            shutil.rmtree(inner, ignore_errors=True)


def remove_abandoned(folders: Iterable[Path]) -> None:
    """Remove the workspaces in these folders whose process has ended, and the files that it had half written."""
    for folder in folders:
        if exists(folder / WORKSPACE) and not _is_held(folder):
            for part in matching(folder, "*.part"):
                part.unlink(missing_ok=True)
            _remove(folder / WORKSPACE)
