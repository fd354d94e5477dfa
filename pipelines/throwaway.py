"""Folders under a home that end with the command that made them, and what a killed one left of its own."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".rehearsal-"
HELD = ".held"
TRIES = 100
PAUSE_SECONDS = 0.1


@contextmanager
def throwaway_folder(home: Path) -> Iterator[Path]:
    """A folder for the owner only, under the home, where copies of patient data may lie. It is gone at the end."""
    with _one_at_a_time(home):
        _remove_leftovers(home)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        held = os.open(folder / HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(held)


def remove_leftovers(home: Path) -> None:
    """Removes the folders whose process has ended without removing them."""
    if any(home.glob(f"{PREFIX}*")):
        with _one_at_a_time(home):
            _remove_leftovers(home)


def _remove_leftovers(home: Path) -> None:
    for folder in home.glob(f"{PREFIX}*"):
        if not _is_held(folder / HELD):
            _remove(folder)


def _remove(folder: Path) -> None:
    """A service that is just ending may still write into the folder: tried again for a moment."""
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(PAUSE_SECONDS)


def _is_held(place: Path) -> bool:
    """Whether a process that runs holds this file or folder: its lock ends with it."""
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


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """A lock on a folder itself: it leaves no file, and ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- the workspace of a run

WORKSPACE = ".spill"


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A folder within this one, for what is gone at the end: `remove_abandoned` removes what a killed process left."""
    with _one_at_a_time(folder):
        inner = folder / WORKSPACE
        inner.mkdir(mode=0o700, exist_ok=True)
        try:
            yield inner
        finally:
            shutil.rmtree(inner, ignore_errors=True)


def remove_abandoned(folders: Iterable[Path]) -> None:
    """Removes the workspaces in these folders whose process has ended, and the files that it had half written."""
    for folder in folders:
        if (folder / WORKSPACE).exists() and not _is_held(folder):
            for part in folder.glob("*.part"):
                part.unlink(missing_ok=True)
            _remove(folder / WORKSPACE)
