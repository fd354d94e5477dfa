"""The journal: the durable list of facts from which the ledger's tables are made, with one line for each transaction.

The newest segment is `journal.ndjson`; earlier ones are `journal/<number>.ndjson.gz`. The first line is its head.
Every other line is `{"n": 7, "at": "2026-...Z", "facts": [["settle", ...], ...]}`, numbered through all segments. A
segment may begin with a snapshot: facts that give every row of every table, so that replay may begin there.
"""

import gzip
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec

from fhir_service.paths import matching
from pipelines.home.files import replace_whole
from pipelines.ledger.lease import is_moment
from pipelines.ledger.tables import SCHEMA_VERSION, LedgerError

VERSION = 1
BYTES_A_SEGMENT = 32 << 20
BLOCK = 1 << 16

Facts = list[list[Any]]


class Position(NamedTuple):
    """A database's position in the journal: journal id, segment, number of the last applied line, the byte after it."""

    journal: str
    segment: int
    number: int
    end: int


class SegmentMissing(LedgerError):
    """A closed segment of a journal is missing."""


class JournalLine(NamedTuple):
    """The facts of one transaction, and its moment as UTC text."""

    at: str
    facts: Facts


class SegmentHead(msgspec.Struct):
    """The first line of a segment. after: the number of the last line before it. schema: the version of its tables.
    at: when the segment was begun; empty in segments of versions that did not note it.
    """

    journal: str
    version: int
    schema: int
    segment: int
    after: int
    snapshot: bool = False
    at: str = ""


class _Body(msgspec.Struct):
    """Every line but the head."""

    n: int
    at: str
    facts: Facts


class _Moment(msgspec.Struct):
    """The time in the head and in every other line."""

    at: str = ""


class Journal:
    """The journal in files. Only a process that holds the database's write lock may write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._closed = path.with_suffix("")
        self._last: tuple[Position | None, str] = None, ""

    # -- its files and positions

    def is_at(self, position: Position | None) -> bool:
        """True if the journal ends at this position, and is for today's tables."""
        if position is None or self._size() != position.end:
            return False
        with self.path.open("rb") as file:
            head = _head(file, self.path)
            here = (position.journal, position.segment, SCHEMA_VERSION)
            return (head.journal, head.segment, head.schema) == here

    def is_of_today(self) -> bool:
        """True if the newest segment is for today's tables."""
        newest = self.head()
        return newest is not None and newest.schema == SCHEMA_VERSION

    def reaches(self, position: Position) -> bool:
        """True if the journal reaches a database's position."""
        newest = self.head()
        return newest is not None and (position.segment, position.end) <= (newest.segment, self._size())

    def is_lost(self) -> bool:
        """True if the newest segment is gone, or is older than a closed one."""
        newest = self.head()
        return (newest.segment if newest else 0) < max(self._closed_segments(), default=0)

    def head(self) -> SegmentHead | None:
        """Return the head of the newest segment; None if there is no journal."""
        if not self._size():
            return None
        with self.path.open("rb") as file:
            return _head(file, self.path)

    def start(self) -> Position:
        """Return where replay into empty tables begins: before the newest snapshot, else at the first line."""
        newest = self.head()
        assert newest is not None  # noqa: S101 - asked only of an existing journal
        for segment in range(newest.segment, 0, -1):
            with self._open(segment, newest.segment) as file:
                head = _head(file, self._file_of(segment, newest.segment))
                if head.snapshot or segment == 1:
                    return Position(head.journal, segment, head.after, file.tell())
        raise SegmentMissing(f"{self.path}: its first segment is missing: restore {self._closed}/. Nothing was sent")

    def is_full(self, position: Position) -> bool:
        """True if the segment that ends at a position is to be closed and another begun."""
        return position.end > BYTES_A_SEGMENT

    # -- reading

    def last_at(self, position: Position) -> str:
        """Return the moment of the last line of a journal that ends at a position, as UTC text.

        The moment is empty if an earlier version did not note it.
        """
        known, at = self._last
        if known != position:
            try:
                with self.path.open("rb") as file:
                    at = _moment_in(_last_line(file, position.end))
            except msgspec.MsgspecError:
                raise LedgerError(
                    f"{self.path}: its last line is damaged: restore the file from a backup. Nothing was sent"
                ) from None
            self._last = position, at
        return at

    def lines(self, after: Position) -> Iterator[tuple[JournalLine, Position]]:
        """Yield the whole lines after a position, each with the position after it.

        Raises:
            LedgerError: a line that is not the last is damaged, or a segment is missing.
        """
        newest = self.head()
        assert newest is not None  # noqa: S101 - asked only of an existing journal
        position = after
        for segment in range(after.segment, newest.segment + 1):
            path = self._file_of(segment, newest.segment)
            with self._open(segment, newest.segment) as file:
                if segment > after.segment:
                    _head(file, path)
                    position = position._replace(segment=segment, end=file.tell())
                    yield JournalLine("", []), position
                else:
                    file.seek(after.end)
                for line, after_it in _lines(file, path, position, last=segment == newest.segment):
                    yield line, after_it
                    position = after_it

    def read_whole(self) -> None:
        """Read every line that a lost ledger would be made of. Raises `LedgerError` as `lines` does."""
        for _ in self.lines(self.start()):
            pass

    def newest_at(self) -> str:
        """Return the moment of the newest whole line, read without the tables; empty text if none can be read."""
        try:
            with self.path.open("rb") as file:
                end = self._size()
                torn = _last_line(file, end)
                whole = torn if torn.endswith(b"\n") else _last_line(file, end - len(torn))
                return _moment_in(whole)
        except (OSError, msgspec.MsgspecError):
            return ""

    # -- writing

    def begin(self, known: Position | None, at: str, snapshot: Sequence[Facts]) -> Position:
        """Make the first segment, with a snapshot if one is given. known: the position in a lost journal, if any."""
        start = known or Position(uuid.uuid4().hex, 0, 0, 0)
        segment = max([start.segment, *self._closed_segments()]) + 1
        has_all = bool(snapshot) or segment > 1
        head = SegmentHead(start.journal, VERSION, SCHEMA_VERSION, segment, start.number, has_all, at)
        return self._begin(head, at, snapshot)

    def put_aside(self) -> Position:
        """Rename the newest segment, which cannot be replayed without earlier ones; return its first position."""
        head = self.head()
        assert head is not None  # noqa: S101 - asked only of an existing journal
        self.path.replace(self.path.with_suffix(".aside"))
        return Position(head.journal, head.segment, head.after, 0)

    def append(self, position: Position, at: str, facts: Facts) -> Position:
        """Write a line after a position, durably. On an error the file is as it was before."""
        line = _encoded(position.number + 1, at, facts)
        try:
            self._write(line, position.end)
        except OSError:
            self.cut(position)
            raise
        after = position._replace(number=position.number + 1, end=position.end + len(line))
        self._last = after, at
        return after

    def cut(self, position: Position) -> None:
        """Remove the bytes after a position: a line that is not whole was never acknowledged."""
        os.truncate(self.path, position.end)

    def next_segment(self, position: Position, at: str, snapshot: Sequence[Facts]) -> Position:
        """Close the newest segment and begin the next one, with a snapshot if one is given.

        Newer closed segments of another history stay as they are. The next segment then needs a snapshot.
        """
        segment = max([position.segment, *self._closed_segments()]) + 1
        follows = segment == position.segment + 1
        has_all = bool(snapshot) or not follows
        head = SegmentHead(position.journal, VERSION, SCHEMA_VERSION, segment, position.number, has_all, at)
        if follows:
            self._close_segment(position.segment)
        return self._begin(head, at, snapshot)

    # -- within

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _file_of(self, segment: int, newest: int) -> Path:
        return self.path if segment == newest else self._closed / f"{segment:06}.ndjson.gz"

    def _open(self, segment: int, newest: int) -> BinaryIO:
        path = self._file_of(segment, newest)
        try:
            return path.open("rb") if segment == newest else cast(BinaryIO, gzip.open(path, "rb"))
        except FileNotFoundError:
            raise SegmentMissing(
                f"{path} is missing: restore it from a backup, or, where it is lost: chartferry verify --adopt."
                " Nothing was sent"
            ) from None

    def _close_segment(self, segment: int) -> None:
        self._closed.mkdir(mode=0o700, exist_ok=True)
        path = self._closed / f"{segment:06}.ndjson.gz"
        part = path.with_suffix(".part")
        with self.path.open("rb") as segment_file, _packing(part) as packed:
            shutil.copyfileobj(segment_file, packed, 1 << 20)
        replace_whole(part, path)

    def _closed_segments(self) -> list[int]:
        return [int(path.name.partition(".")[0]) for path in matching(self._closed, "[0-9]*.ndjson.gz")]

    def _begin(self, head: SegmentHead, at: str, snapshot: Sequence[Facts]) -> Position:
        return self._replace(head, (_encoded(n, at, facts) for n, facts in enumerate(snapshot, head.after + 1)))

    def _replace(self, head: SegmentHead, lines: Iterable[bytes]) -> Position:
        """Put a new segment in place in one step."""
        part, number = self.path.with_suffix(".part"), head.after
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            end = file.write(msgspec.json.encode(head) + b"\n")
            for line in lines:
                end, number = end + file.write(line), number + 1
        replace_whole(part, self.path)
        return Position(head.journal, head.segment, number, end)

    def _write(self, text: bytes, at: int) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = 0
            while written < len(text):
                written += os.pwrite(descriptor, text[written:], at + written)
            getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has only the second
        finally:
            os.close(descriptor)


# -- copies of a journal that is a table


def write_copy(folder: Path, lines: Iterable[tuple[int, str, Facts]]) -> None:
    """Write numbered lines to a file named after the first and the last number; write no file if there are no lines."""
    first = last = 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"{uuid.uuid4().hex}.part"
    with _packing(part) as packed:
        for number, at, facts in lines:
            packed.write(_encoded(number, at, facts))
            first, last = first or number, number
    if last:
        replace_whole(part, folder / f"{first:012}-{last:012}.ndjson.gz")
    else:
        part.unlink()


def lines_of_copy(path: Path) -> Iterator[tuple[int, JournalLine]]:
    """Yield the lines of a copy with their numbers. Raises `LedgerError` if the copy is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            for said in (msgspec.json.decode(text, type=_Body) for text in file):
                yield said.n, JournalLine(said.at, said.facts)
    except (msgspec.MsgspecError, OSError, EOFError):
        raise LedgerError(f"{path} is damaged: restore it from a backup. Nothing was sent") from None


@contextmanager
def _packing(path: Path) -> Iterator[gzip.GzipFile]:
    """Write a compressed file. The same content always gives the same bytes."""
    with (
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3, mtime=0) as packed,
    ):
        yield packed


# -- one line


def _last_line(file: BinaryIO, end: int) -> bytes:
    """Return the line of a file that ends at a byte."""
    found, size = b"", 0
    while size < end and b"\n" not in found[:-1]:
        size = min(end, 2 * size or BLOCK)
        file.seek(end - size)
        found = file.read(size)
    return found[found.rfind(b"\n", 0, -1) + 1 :]


def _moment_in(line: bytes) -> str:
    """Return the moment of a line or head. Raises `msgspec.ValidationError` if it has no valid moment."""
    at = msgspec.json.decode(line, type=_Moment).at
    if at and not is_moment(at):
        raise msgspec.ValidationError("no moment")
    return at


def _encoded(number: int, at: str, facts: Facts) -> bytes:
    return msgspec.json.encode(_Body(number, at, facts)) + b"\n"


def _head(file: BinaryIO, path: Path) -> SegmentHead:
    try:
        head = msgspec.json.decode(file.readline(), type=SegmentHead)
    except (msgspec.MsgspecError, OSError, EOFError):
        raise LedgerError(f"{path}: its first line is damaged: restore it from a backup. Nothing was sent") from None
    if (head.version, head.schema) > (VERSION, SCHEMA_VERSION):
        said, known = f"{head.version}.{head.schema}", f"{VERSION}.{SCHEMA_VERSION}"
        raise LedgerError(f"{path} is from a newer version ({said}, this one knows {known}). Nothing was sent")
    return head


def _lines(file: BinaryIO, path: Path, position: Position, last: bool) -> Iterator[tuple[JournalLine, Position]]:
    """Yield the lines of one segment, each with the position after it.

    last: True for the newest segment. Its last line may be torn: without its end, or with parts that never came to the
    disk.
    """
    for text in file:
        if last and (not text.endswith(b"\n") or b"\0" in text) and not file.read(1):
            return
        try:
            said = msgspec.json.decode(text, type=_Body)
            whole = text.endswith(b"\n") and said.n == position.number + 1
        except msgspec.MsgspecError:
            whole = False
        if not whole:
            raise LedgerError(
                f"{path}: the line behind number {position.number} is damaged: restore the file from a backup. "
                "Nothing was sent"
            )
        position = position._replace(number=said.n, end=position.end + len(text))
        yield JournalLine(said.at, said.facts), position
