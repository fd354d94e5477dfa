"""A file of JSON lines, each with the SHA-256 of the line before (`prev`): what was cut, changed or removed shows.

`<file>.head` holds the size of the file and the hash of its last line, which finds lines removed at the end. Each file
has one process that writes it: another one with the same name writes `<name>.2<suffix>`, and so on.
"""

import fcntl
import gzip
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

from fhir_service.paths import exists, is_folder

NOTHING = sha256(b"").hexdigest()
"""The hash before the first line of all."""
MARK = b'{"chain":"goes on"}'
"""The line that is added when a file is opened, and when it can be written again after a failure."""
_BLOCK = 64 << 10

Write = Callable[[int, bytes], int]


def hash_of(line: bytes) -> str:
    """Return the hash of a line without its newline."""
    return sha256(line).hexdigest()


def chained_lines(records: Iterable[bytes], last: str) -> tuple[bytes, str]:
    """Return the lines of JSON objects that follow a line with the hash `last`, and the hash of the last one."""
    lines = []
    for record in records:
        line = b'%s,"prev":"%s"}' % (record[:-1], last.encode())
        last = hash_of(line)
        lines.append(line)
    return b"\n".join([*lines, b""]), last


@dataclass(frozen=True, slots=True)
class FileHead:
    """The size of a chained file and the hash of its last line, as its writer left them."""

    size: int
    hash: str

    @classmethod
    def of(cls, file: Path) -> "FileHead | None":
        """Return the head of a file; None if it has none that can be read."""
        try:
            size, found = head_file(file).read_text("ascii").split()
            return cls(int(size), found)
        except (OSError, ValueError):
            return None

    def text(self) -> bytes:
        """Return the content of the head's file. Its length is fixed, so that one write replaces it."""
        return b"%020d %s\n" % (self.size, self.hash.encode())


def head_file(file: Path) -> Path:
    """Return the path of a file's head: `<file>.head`."""
    return file.with_name(f"{file.name}.head")


def files_of(path: Path) -> list[Path]:
    """Return the files under this name, of every process, that have content or a head."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.[0-9]+{re.escape(path.suffix)}(?:\.head)?")
    beside = sorted(path.parent.iterdir()) if is_folder(path.parent) else []
    own = {found.with_name(found.name.removesuffix(".head")) for found in beside if pattern.fullmatch(found.name)}
    return [found for found in (path, *sorted(own)) if exists(found) or exists(head_file(found))]


class ChainedFile:
    """Append to a chained file. For one thread at a time."""

    def __init__(self, path: Path, write: Write = os.write) -> None:
        self._named, self._write = path, write
        self._open: _LockedFile | None = None
        self._waiting: list[bytes] = []
        self._rest = b""

    @property
    def is_open(self) -> bool:
        """True while this process has a file of this name open."""
        return self._open is not None

    def append(self, records: Sequence[bytes], keep: bool) -> None:
        """Write JSON objects at the end, in one write.

        Raises:
            OSError: they are not written. With `keep` they wait for the next `append` or `flush`.
        """
        self._waiting += records
        try:
            self.flush()
        except OSError:
            if not keep and self._waiting:
                del self._waiting[-len(records) :]
            if not self._waiting:
                self._waiting.append(MARK)
            raise

    def flush(self) -> None:
        """Write the waiting lines, to a new file if the former one was moved away. Raises OSError."""
        self._write_rest()
        if self._open is None or self._open.moved():
            self._reopen()
        if self._waiting and self._open:
            lines, last = chained_lines(self._waiting, self._open.last)
            lines = lines if self._open.whole else b"\n" + lines
            written = self._write(self._open.file, lines)
            self._waiting.clear()
            self._open.whole = True
            self._rest = lines[written:]
            self._open.went(written, last)
        self._write_rest()

    def _reopen(self) -> None:
        self.close()
        self._open = _LockedFile.free(self._named)
        if self._waiting[:1] != [MARK]:
            self._waiting.insert(0, MARK)

    def _write_rest(self) -> None:
        if self._open is None:
            return
        while self._rest:
            written = self._write(self._open.file, self._rest)
            self._rest = self._rest[written:]
            self._open.went(written, self._open.last)
        self._open.note()

    def close(self) -> None:
        """Close the file. Another process may then write it."""
        if self._open:
            self._open.close()
            self._open = None


class _LockedFile:
    """A chained file that this process has locked: its size, and the hash of its last line.

    A device or a pipe has no head. Its chain begins anew each time it is opened.
    """

    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file, self._head = path, file, -1
        about = os.fstat(file)
        self._regular = stat.S_ISREG(about.st_mode)
        if self._regular:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._is, self._size, self._noted = (about.st_dev, about.st_ino), about.st_size, -1
        self.last, self.whole = _end(path, about.st_size) if self._regular else (NOTHING, True)
        if self._regular:
            self._head = os.open(head_file(path), os.O_WRONLY | os.O_CREAT, 0o600)

    @classmethod
    def free(cls, path: Path) -> "_LockedFile":
        """Open the first file under this name that no other process writes. Raises OSError."""
        for found in chain([path], (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(2))):
            file = os.open(found, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                return cls(found, file)
            except BlockingIOError:
                os.close(file)
            except OSError:
                os.close(file)
                raise
        raise AssertionError("numbers have no end")

    def moved(self) -> bool:
        """True if no file has the name any more, or another file has it, or the file became shorter."""
        try:
            about = os.stat(self.path)  # noqa: PTH116 - once for each request
        except FileNotFoundError:
            return True
        return (about.st_dev, about.st_ino) != self._is or (self._regular and about.st_size < self._size)

    def went(self, size: int, last: str) -> None:
        """Note that so many bytes were written, and the hash of the last line after the rest of them."""
        self._size += size
        self.last = last

    def note(self) -> None:
        """Write the head, if all lines are complete."""
        if self._regular and self._noted != self._size:
            os.pwrite(self._head, FileHead(self._size, self.last).text(), 0)
            self._noted = self._size

    def close(self) -> None:
        os.close(self.file)
        if self._head >= 0:
            os.close(self._head)


def _end(path: Path, size: int) -> tuple[str, bool]:
    """Return the hash that the next line has as `prev`, and True if the last line has its newline.

    A new file continues from its head. So does a file without the line that its head names: `audit verify` then finds
    the break.
    """
    head = FileHead.of(path)
    line, whole = _last_line(path, size)
    if head and (size < head.size or hash_of(_last_line(path, head.size)[0]) != head.hash):
        return head.hash, whole
    return hash_of(line), whole


def _last_line(path: Path, size: int) -> tuple[bytes, bool]:
    """Return the last line of a file of this size, and True if it has its newline. An empty file has an empty line."""
    tail = b""
    with path.open("rb") as file:
        while size and b"\n" not in tail[:-1]:
            start = max(0, size - _BLOCK)
            file.seek(start)
            tail = file.read(size - start) + tail
            size = start
    whole = tail.endswith(b"\n") or not tail
    return tail.removesuffix(b"\n").rpartition(b"\n")[2], whole


# --- Examining ------------------------------------------------------------------------------------


@dataclass(slots=True)
class ExaminedFile:
    """A file that was read from its beginning to its end."""

    path: Path
    begins: str | None = None
    """The hash that its first line carries on; None where lines from before the chain come first."""
    ends: str = NOTHING
    records: int = 0
    unchained: int = 0
    cut: list[int] = field(default_factory=list)
    """Lines without their end, over which the chain goes on: a process ended while it wrote them."""
    wrong: list[str] = field(default_factory=list)
    hashes: set[str] = field(default_factory=set)
    """Of the hashes that were noted, those that a line of it has, or that its first line carries on."""


def examine(current: Sequence[Path], former: Sequence[Path], noted: Collection[str] = ()) -> list[ExaminedFile]:
    """Examine files that may be written meanwhile, and former ones that were moved away: each, and how they join.

    noted: hashes that somebody noted down. The line of each must be in one of the files, or right before its first
    line. The hash that stands for an empty file is in each.
    """
    examined = [*(_current(path, noted) for path in current), *(_examined(path, None, noted) for path in former)]
    for one in examined:
        others = [other for other in examined if other is not one]
        if one.begins not in (None, NOTHING, *(other.ends for other in others)):
            one.wrong.append(f"it follows a file that ends with {one.begins}: name that file too")
        if one.path in former and one.ends not in [other.begins for other in others]:
            one.wrong.append("no named file follows it: lines at its end may be missing")
    return examined


def _current(path: Path, noted: Collection[str]) -> ExaminedFile:
    head = FileHead.of(path)
    if not exists(path):
        gone = ExaminedFile(path)
        gone.wrong.append("the file is missing, and its head is there")
        return gone
    found = _examined(path, head, noted)
    if head is None and found.records:
        found.wrong.append(f"{head_file(path).name} is missing: lines at the end may be missing")
    return found


def _examined(path: Path, head: FileHead | None, noted: Collection[str]) -> ExaminedFile:
    """Examine one file. If its head is known, check that the line at the size in the head has the hash in the head."""
    found, reached, at_head = ExaminedFile(path, hashes={NOTHING}), 0, NOTHING
    walk = _Walk(found)
    with _opened(path) as file:
        for number, raw in enumerate(file, 1):
            walk.step(number, raw)
            reached += len(raw)
            if found.ends in noted:
                found.hashes.add(found.ends)
            if head and reached == head.size:
                at_head = found.ends
    if found.begins and found.begins in noted:
        found.hashes.add(found.begins)
    if head and reached < head.size:
        found.wrong.append("lines at the end were removed, or the last one was cut")
    elif head and at_head != head.hash:
        found.wrong.append("the last line is not the one that was written last")
    return found


def _opened(path: Path) -> BinaryIO:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    found: BinaryIO = opened(path, "rb")
    return found


class _Walk:
    """Walk through the lines of a file, and note each line that does not follow the one before."""

    def __init__(self, found: ExaminedFile) -> None:
        self._found, self._begun = found, False

    def step(self, number: int, raw: bytes) -> None:
        """Take the next line."""
        found, line = self._found, raw.removesuffix(b"\n")
        record = record_of(line)
        if record is None or not raw.endswith(b"\n"):
            found.cut.append(number)
        elif "prev" not in record:
            if self._begun:
                found.wrong.append(f"line {number} is not part of the chain: it was added or changed")
                return
            found.unchained += 1
        else:
            self._link(number, record)
            found.records += "chain" not in record
        found.ends = hash_of(line)

    def _link(self, number: int, record: dict[str, Any]) -> None:
        found = self._found
        if not self._begun:
            self._begun = True
            if "chain" not in record:
                found.wrong.append(f"line {number} is not the beginning of a chain: lines before it were removed")
            if number == 1:
                found.begins = record["prev"]
                return
        if record["prev"] != found.ends:
            found.wrong.append(
                f"line {number} does not follow line {number - 1}: that one was changed, or lines between were removed"
            )


def record_of(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line; None if it holds none."""
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def records_of(path: Path, offset: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the records of a file in order. Lines that were cut off, and the chain's own marks, are passed over.

    offset: of the byte behind which the first line begins that is read.
    """
    if not exists(path):
        return
    with path.open("rb") as file:
        if offset:
            file.seek(offset)
            file.readline()
        for line in file:
            record = record_of(line)
            if record is not None and "chain" not in record:
                yield record


def records_since(path: Path, since: datetime) -> Iterator[dict[str, Any]]:
    """Yield the records of a file from a time on; the beginning of a long file is not read."""
    size, back = path.stat().st_size if exists(path) else 0, _BLOCK
    while back < size and not _begins_before(path, size - back, since):
        back *= 4
    for record in records_of(path, max(size - back, 0)):
        if datetime.fromisoformat(record["time"]) >= since:
            yield record


def _begins_before(path: Path, offset: int, since: datetime) -> bool:
    """True if the first record behind an offset is of before a time."""
    first = next(records_of(path, offset), None)
    return first is not None and datetime.fromisoformat(first["time"]) < since


def goes_on(path: Path) -> bool:
    """True if earlier lines were moved away: a file continues another one, or is missing."""
    try:
        with path.open("rb") as file:
            first = file.readline()
    except FileNotFoundError:
        return True
    return not first or (record_of(first) or {}).get("prev", NOTHING) != NOTHING
