"""Witnesses: the versions of resources that a process is about to store beside others.

A process that is killed between a commit and its record in the audit leaves them in `<audit>.witnesses`. That file
names the versions that only this process may have stored. They are written before each commit, and not flushed: like
the audit, they outlive the process, not the machine. A process that ends by itself removes its file.
"""

import errno
import fcntl
import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path

import orjson

from fhir_service.paths import exists, is_file, matching
from fhir_service.store.changes import Witness

MOST = 4 << 20
"""The least bytes of witnesses that are kept. Older ones were answered long ago, and so are in the audit."""


class Witnesses:
    """Write the witnesses of this process. For one thread at a time."""

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._files: list[_WitnessFile] = []

    def note(self, versions: Iterable[Witness]) -> None:
        """Write down versions that are about to be stored. After an OSError they must not be stored."""
        if not self._files:
            if exists(self._audit) and not is_file(self._audit):
                # An audit on a device or a pipe cannot be read again, so that witnesses are of no use.
                return
            self._files = _free(self._audit)
        if self._files[0].size > MOST:
            self._files.reverse()
            self._files[0].clear()
        self._files[0].add(orjson.dumps(list(map(tuple, versions))) + b"\n")

    def remove(self) -> None:
        """Remove the files. Call it when all that was stored is in the audit."""
        for half in reversed(self._files):
            half.remove()
        self._files = []


class _WitnessFile:
    """One of two files that are filled in turn. The next write overwrites a failed one."""

    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file, self.size = path, file, 0

    def add(self, line: bytes) -> None:
        if os.pwrite(self.file, line, self.size) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += len(line)

    def clear(self) -> None:
        os.ftruncate(self.file, 0)
        self.size = 0

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.file)


def _free(audit: Path) -> list[_WitnessFile]:
    """Make the files under the first name that no process uses or has left behind."""
    for path in _names(audit):
        with suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            if _taken(path, file):
                other = _other(path)
                second = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                return [_WitnessFile(path, file), _WitnessFile(other, second)]
            os.close(file)
    raise AssertionError("numbers have no end")


def _names(audit: Path) -> Iterator[Path]:
    named = audit.with_name(f"{audit.name}.witnesses")
    return chain([named], (audit.with_name(f"{named.name}.{number}") for number in count(2)))


def _other(path: Path) -> Path:
    return path.with_name(f"{path.name}.other")


def _taken(path: Path, file: int) -> bool:
    """Lock a file. Return True if no process had it locked, and none has removed it meanwhile."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), os.stat(path))  # noqa: PTH116 - beside the other
    except (BlockingIOError, FileNotFoundError):
        return False


class LeftWitnesses:
    """The witnesses of a killed process. This process has them locked until it closes them."""

    def __init__(self, path: Path, file: int) -> None:
        self.path, self._file = path, file

    def versions(self) -> list[Witness]:
        """Return the versions that it may have stored, in the order written: clocks may be set back."""
        halves = [path for path in (self.path, _other(self.path)) if exists(path)]
        return list(chain.from_iterable(map(_read, sorted(halves, key=lambda path: path.stat().st_mtime_ns))))

    def remove(self) -> None:
        """Remove the files. Call it when all that they name is in the audit."""
        _other(self.path).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._file)


def left_beside(audit: Path) -> Iterator[LeftWitnesses]:
    """Yield the witnesses that killed processes have left beside an audit."""
    found = matching(audit.parent, f"{glob.escape(audit.name)}.witnesses*")
    for path in sorted(path for path in found if path.suffix != ".other"):
        with suppress(FileNotFoundError):
            file = os.open(path, os.O_RDONLY)
            left = LeftWitnesses(path, file)
            try:
                if _taken(path, file):
                    yield left
            finally:
                left.close()


def _read(path: Path) -> Iterator[Witness]:
    """Yield the witnesses of a file. Skip incomplete lines: their versions were not stored."""
    with suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError):
                for name, id, version, updated_at, client in orjson.loads(line):
                    yield Witness(name, id, version, datetime.fromisoformat(updated_at), client)
