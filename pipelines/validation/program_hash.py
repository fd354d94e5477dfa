"""The checking program: a hash of it, and a test that the running code is the one on the disk."""

import hashlib
import sys
import zoneinfo
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fhir_service.paths import is_file, matching
from pipelines.home.files import sha256_of

if TYPE_CHECKING:
    from psutil import Process

PROJECT = Path(__file__).parents[2]
PACKAGES = ("fhir_service", "pipelines")
TICK = 1.0
"""Seconds by which the times of a file and of a process may differ."""


def program_hash(zone: str) -> str | None:
    """Return a hash of the program: its files, Python, the packages as they were installed, the system's file of a
    time zone.

    Return None if any of these was changed since the program was started, because older code may be running.
    """
    return _hash(zone) if _is_as_started(zone) else None


def _is_as_started(zone: str) -> bool:
    """True if nothing was changed since this process, or a parent process of the same program, was started."""
    import psutil  # needed only for large files

    try:
        this = psutil.Process()
        program = this.exe()
        above = (each for each in this.parents() if _runs(each, program))
        began = min(each.create_time() for each in (this, *above)) - TICK
    except psutil.Error:
        return False
    parts = (*(path for _, path in _files(zone)), *_packages(), *_records())
    return all(path.stat().st_ctime < began for path in parts)


def _runs(process: "Process", program: str) -> bool:
    from psutil import Error

    with suppress(Error):  # another user's process
        return bool(process.exe() == program)
    return False


@cache
def _hash(zone: str) -> str:
    made_of = hashlib.sha256(sys.version.encode())
    for place, path in _files(zone):
        made_of.update(f"{path.relative_to(place)} {sha256_of(path)}\n".encode())
    made_of.update("\n".join(path.name for path in _packages()).encode())
    made_of.update("\n".join(map(sha256_of, _records())).encode())
    return made_of.hexdigest()


def _files(zone: str) -> Iterator[tuple[Path, Path]]:
    """Yield the files of the program and of a time zone, each after the folder that its name is relative to."""
    for package in PACKAGES:
        for path in matching(PROJECT / package, "**"):
            if path.suffix != ".pyc" and is_file(path):
                yield PROJECT, path
    for zones in map(Path, zoneinfo.TZPATH):
        if is_file(path := zones / zone):
            yield zones, path


def _packages() -> list[Path]:
    """Return the paths that name the installed packages and their versions."""
    return [path for place in sys.path for path in sorted(Path(place).glob("*-info"))]


def _records() -> list[Path]:
    """Return the lists of the packages' files, with their hashes."""
    return [record for path in _packages() if is_file(record := path / "RECORD")]
