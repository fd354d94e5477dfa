"""Files as rows: bytes to text to CSV records or JSON objects, with the physical line each begins at.

A row that cannot be told what it is becomes a `BadRow`; a file whose rows cannot be told apart is `Unreadable`.
"""

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from fhir_service.interface.datatypes import Malformed, parse_json
from pipelines.batch import Unreadable
from pipelines.feeds.columns import Fault
from pipelines.feeds.marks import Columns, unmarked_line
from pipelines.feeds.schema import FeedFile

CHUNK = 5_000
CHUNK_SIZE = 16 << 20
LONGEST_LINE = 2 << 20
GZIP = b"\x1f\x8b"
csv.field_size_limit(LONGEST_LINE)


@dataclass(slots=True)
class BadRow:
    """A row that could not be read. cells: its fields where they could at least be counted."""

    line: int
    lines: int
    raw: str
    fault: Fault
    cells: list[str] | None = None


@dataclass(slots=True)
class Chunk:
    """Some thousand rows, or fewer long ones.

    line: the physical line that each begins at; lines: how many it has; raw: its own text.
    """

    rows: list[Any] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    size: int = 0

    def add(self, row: Any, line: int, lines: int, raw: str) -> None:
        self.rows.append(row)
        self.line.append(line)
        self.lines.append(lines)
        self.raw.append(raw)
        self.size += len(raw)


@dataclass(slots=True)
class Counted:
    """Physical lines of a file: all, those of its header, those without anything on them."""

    lines: int = 0
    header: int = 0
    blank: int = 0


class Reader:
    """A file, read once from its beginning. header: the names of a CSV's columns, None for NDJSON.

    header_text: the header's own lines. answers: by line, the id of the reject that a row says it answers; the marks
    that say so are in none of the above.
    """

    def __init__(self, path: Path, file_name: str, feed: FeedFile, form: str) -> None:
        self.name = file_name
        self.feed = feed
        self.counted = Counted()
        self._path = path
        self._taken: list[str] = []
        self._form = form
        self.header: list[str] | None = None
        self.header_text = ""
        self._marks = Columns((), feed)
        self.answers: dict[int, str] = {}

    def __enter__(self) -> Self:
        self._file = _open(self._path, self.name, self.feed)
        self._lines = self._physical_lines()
        self._csv = csv.reader(
            self._lines, strict=True, delimiter=self.feed.delimiter, quotechar=self.feed.quote, doublequote=True
        )
        try:
            if self._form == "csv":
                self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some thousand at a time."""
        chunk = Chunk()
        rows = self._csv_rows(chunk) if self._form == "csv" else self._objects(chunk)
        for _ in rows:
            if len(chunk.rows) + len(chunk.bad) >= CHUNK or chunk.size >= CHUNK_SIZE:
                yield chunk
                for held in (chunk.rows, chunk.line, chunk.lines, chunk.raw, chunk.bad):
                    held.clear()
                chunk.size = 0
        yield chunk

    def _physical_lines(self) -> Iterator[str]:
        """The file's lines, each also put aside in `_taken` until its row is whole."""
        readline, taken, limit = self._file.readline, self._taken, LONGEST_LINE
        try:
            while line := readline(limit):
                if len(line) >= limit:
                    raise Unreadable(f"{self.name}: line {self.counted.lines + 1} is longer than 2 MiB; {_NOT_ROWS}")
                self.counted.lines += 1
                taken.append(line)
                yield line
        except _DAMAGED:
            raise Unreadable(f"{self.name}: {_GZIP_DAMAGED}") from None
        except UnicodeDecodeError:
            raise Unreadable(f"{self.name}: not text in {self.feed.encoding}; {_NAME_THE_ENCODING}") from None

    def _take(self) -> tuple[int, int, str]:
        """First line, number of lines and text of what was read since the last time."""
        taken = self._taken
        lines = len(taken)
        raw = taken[0] if lines == 1 else "".join(taken)
        taken.clear()
        return self.counted.lines - lines + 1, lines, raw

    # --- CSV --------------------------------------------------------------------------------------

    def _read_header(self) -> list[str]:
        try:
            for cells in self._csv:
                _, lines, raw = self._take()
                if not cells:
                    self.counted.blank += lines
                    continue
                self.counted.header = lines
                if _unreadable(raw):
                    raise Unreadable(
                        f"{self.name}: the header is not text in {self.feed.encoding}; {_NAME_THE_ENCODING}"
                    )
                return self._own_header([cell.strip() for cell in cells], raw)
        except csv.Error:
            raise Unreadable(f"{self.name}: the first line is no CSV header; {_NOT_ROWS}") from None
        raise Unreadable(f"{self.name}: the file is empty; export it again")

    def _own_header(self, names: list[str], raw: str) -> list[str]:
        self._marks, self.header_text = Columns(names, self.feed), raw
        if self._marks:
            _, names, self.header_text = self._marks.off(names, raw)
        return names

    def _own(self, line: int, cells: list[str], raw: str) -> tuple[list[str], str]:
        answered, cells, raw = self._marks.off(cells, raw)
        self._answering(line, answered)
        return cells, raw

    def _answering(self, line: int, reject_id: str | None) -> None:
        if reject_id:
            self.answers[line] = reject_id

    def _csv_rows(self, chunk: Chunk) -> Iterator[None]:
        while True:
            try:
                yield from self._good_rows(chunk)
            except csv.Error as error:
                line, lines, raw = self._take()
                if (lines > 1 and "unexpected end" in str(error)) or "field larger" in str(error):
                    raise Unreadable(
                        f"{self.name}: a quote ({self.feed.quote}) opened in the row of line {line} is never closed, "
                        "so that the rows after it cannot be told apart; correct that row"
                    ) from None
                if self._marks:
                    answered, raw = self._marks.off_text(raw)
                    self._answering(line, answered)
                chunk.bad.append(BadRow(line, lines, raw, _BAD_QUOTING))
                yield
            else:
                return

    def _good_rows(self, chunk: Chunk) -> Iterator[None]:
        """Rows up to the next one that is wrongly quoted."""
        width = len(self.header or ())
        for found in self._csv:
            line, lines, raw = self._take()
            if not found:
                self.counted.blank += lines
                continue
            cells, raw = self._own(line, found, raw) if self._marks else (found, raw)
            if len(cells) != width:
                chunk.bad.append(BadRow(line, lines, raw, _ragged(len(cells), width), cells))
            elif fault := _unreadable(raw):
                chunk.bad.append(BadRow(line, lines, raw, fault, cells))
            else:
                chunk.add(cells, line, lines, raw)
            yield

    # --- NDJSON -----------------------------------------------------------------------------------

    def _objects(self, chunk: Chunk) -> Iterator[None]:
        seen = False
        for text in self._lines:
            line, lines, raw = self._take()
            if not text.strip():
                self.counted.blank += lines
                continue
            if not seen and text.strip() in ("{", "[", "[{"):
                raise Unreadable(
                    f"{self.name}: one JSON document over several lines; NDJSON has one object on each line"
                )
            seen = True
            answered, raw = unmarked_line(raw)
            self._answering(line, answered)
            try:
                found = None if (fault := _unreadable(raw)) else parse_json(raw)
            except ArithmeticError:
                fault = Fault("FEED-FILE-04", "no JSON object: a number out of range")
            except Malformed as error:
                fault = Fault("FEED-FILE-04", f"no JSON object: {str(error).partition(' (')[0]}")
            if fault is None and not isinstance(found, dict):
                fault = Fault("FEED-FILE-04", "no JSON object: each line holds one object")
            if fault:
                chunk.bad.append(BadRow(line, lines, raw, fault))
            else:
                chunk.add(found, line, lines, raw)
            yield
        if not seen:
            raise Unreadable(f"{self.name}: the file is empty; export it again")


_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
_GZIP_DAMAGED = "the gzip data is cut off or damaged; export the file again"
_NOT_ROWS = "check that it is the export it is named for"
_NAME_THE_ENCODING = 'export it as UTF-8, or name its encoding in the feed file (encoding = "windows-1252")'
_BAD_QUOTING = Fault(
    "FEED-FILE-02", "wrong quoting: a quote inside a field is doubled, and a closing quote ends the field"
)


def _ragged(fields: int, width: int) -> Fault:
    return Fault("FEED-FILE-02", f"{fields} fields where the header has {width}; a comma inside a field needs quotes")


def _unreadable(raw: str) -> Fault | None:
    """What makes a row's text no text: a NUL, or bytes that the encoding does not know."""
    if "\0" in raw:
        return Fault("FEED-FILE-02", "a NUL character in the row")
    if raw.isascii():
        return None
    try:
        raw.encode()
    except UnicodeEncodeError:
        return Fault("FEED-FILE-02", f"bytes that are not in the file's encoding; {_NAME_THE_ENCODING}")
    return None


def printable(raw: str) -> str:
    """A row's text as Parquet can hold it."""
    return raw if raw.isascii() else raw.encode("utf-8", "backslashreplace").decode()


# --- Opening --------------------------------------------------------------------------------------

_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _open(path: Path, name: str, feed: FeedFile) -> TextIO:
    """The file as text, unpacked when it is gzip. Raises Unreadable for what is surely no text."""
    encoding = codecs.lookup(feed.encoding).name
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            _surely_text(file.read(4096), name, encoding)
        stream: Any = gzip.open(path) if packed else path.open("rb")  # noqa: SIM115 - the reader closes it
    except _DAMAGED:
        raise Unreadable(f"{name}: {_GZIP_DAMAGED}") from None
    except OSError as error:
        raise Unreadable(f"{name}: cannot be read: {error.strerror}") from None
    if encoding == "utf-8":
        encoding = "utf-8-sig"
    errors = "strict" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
    return io.TextIOWrapper(stream, encoding, errors, newline="")


def _surely_text(start: bytes, name: str, encoding: str) -> None:
    if not start:
        raise Unreadable(f"{name}: the file is empty; export it again")
    if encoding.startswith(("utf-16", "utf-32")):
        return
    if start[:2] in _BOMS:
        raise Unreadable(f'{name}: the file is UTF-16; export it as UTF-8, or say encoding = "utf-16" in the feed file')
    if start.startswith((b"PK\x03\x04", b"%PDF", b"\xd0\xcf\x11\xe0")):
        raise Unreadable(f"{name}: the file is a workbook, an archive or a PDF; export it as CSV")
    if start.count(0) * 10 > len(start):
        raise Unreadable(f"{name}: the file is binary or in another encoding; {_NAME_THE_ENCODING}")
