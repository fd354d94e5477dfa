"""Rows in chunks: readers hand over a few thousand at a time, each with its line, its raw text, or its fault."""

import codecs
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Self

from fhir_service.interface.json_text import Malformed, parse_json
from pipelines.feeds.reading.opening import NAME_THE_ENCODING
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import DELIMITERS
from pipelines.home.counted import counted

BAD_QUOTING = ValueFault(
    "FEED-FILE-02", "wrong quoting: double each quote inside a field, and let no text follow a closing quote"
)
UNCLOSED = ValueFault(
    "FEED-FILE-02",
    "wrong quoting: a quote opens in this row and is not closed; close it (the lines after it were read as rows)",
)
SWALLOWED = ValueFault(
    "FEED-FILE-02",
    "a quote opens on the first line, and a line after it looks like a row of its own; close the quote, or, if the "
    'text is right, put the row in again unchanged (quotes = "as they are" in the feed file takes all such rows)',
)
TORN = ValueFault(
    "FEED-FILE-02",
    "wrong quoting: two fields have quotes inside, but not around them, so a delimiter may have cut a text; put quotes "
    "around such fields and double those inside "
    '(if the fields are right, quotes = "as they are" in the feed file takes such rows)',
)
NO_OBJECT = ValueFault("FEED-FILE-04", "not a JSON object; each line must hold one")
OUT_OF_RANGE = ValueFault("FEED-FILE-04", "not a JSON object: a number is out of range")
HALF_A_CHARACTER = ValueFault(
    "FEED-FILE-04", "a text has half of a character (an escape from \\ud800 to \\udfff alone)"
)
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class SourceRow(NamedTuple):
    """A row of a source: its fields or object, its first line, the number of its lines, and its text.

    fault: why it could not be read; its cells are None if they could not even be counted. is_doubtful: True if the
    cells may be right, unless a quote or the end of the file has cut them. is_ragged: True if there are too many cells
    or too few.
    """

    cells: Any
    line: int
    lines: int
    raw: str
    fault: ValueFault | None = None
    is_doubtful: bool = False
    is_ragged: bool = False

    @property
    def end(self) -> int:
        """Return its last line."""
        return self.line + self.lines - 1

    def padded(self, width: int) -> Any:
        """Return the object or the cells, which get empty ones up to the width of a row if the row has a fault."""
        if self.fault is None or isinstance(self.cells, dict):
            return self.cells
        return [*(self.cells or ()), *[""] * (width - len(self.cells or ()))]


def lines_of(fault: ValueFault, first: int, last: int) -> ValueFault:
    """Return the fault of a row, with its lines named if there are several."""
    if first == last:
        return fault
    return ValueFault(fault.rule, f"lines {first} to {last} were read as one row: {fault.message}")


def ragged(fields: int, width: int, delimiter: str, like: str, quoted: bool) -> ValueFault:
    """Return the fault of a row with too many or too few fields. like: the words for what has `width` fields."""
    sign = DELIMITERS.get(delimiter, f"'{delimiter}'")
    quotes = f"; a {sign} inside a field needs quotes" if quoted and fields > width else ""
    return ValueFault("FEED-FILE-02", f"{counted(fields, 'field')} where {like} {width}{quotes}")


def is_single_byte(encoding: str) -> bool:
    """True if an encoding has one byte a character. It decodes nearly any bytes, even UTF-8, into some text."""
    return codecs.lookup(encoding).name.startswith(("cp125", "iso8859", "cp437", "cp85", "mac", "koi8", "latin"))


def other_text(raw: str, encoding: str) -> ValueFault | None:
    """Return the fault of a row that is UTF-8 but was read in a single-byte encoding; None for other rows."""
    if raw.isascii():
        return None
    try:
        raw.encode(encoding).decode()
    except UnicodeError:
        return None
    mend = 'set encoding = "utf-8" in the feed file, or export all rows in one encoding'
    return ValueFault("FEED-FILE-02", f"the row is UTF-8 and was read as {encoding}; {mend}")


def unreadable(raw: str) -> ValueFault | None:
    """Return the fault of a row's text with a NUL or with bytes that are not in the encoding; None if it has none."""
    if "\0" in raw:
        return ValueFault("FEED-FILE-02", "a NUL character; export the file again as text")
    if raw.isascii():
        return None
    try:
        raw.encode()
    except UnicodeEncodeError:
        return ValueFault("FEED-FILE-02", f"bytes that are not in the file's encoding; {NAME_THE_ENCODING}")
    return None


def is_torn(cells: list[str], raw: str, quote: str) -> bool:
    """True if a quoted text may have been cut into cells: two unquoted cells have an odd number of quotes."""
    odd = [cell for cell in cells if quote in cell and cell.count(quote) % 2]
    return len(odd) > 1 and sum(f"{quote}{cell.replace(quote, quote * 2)}{quote}" not in raw for cell in odd) > 1


def unfit(found: Any, raw: str) -> ValueFault | None:
    """Return the fault of a JSON value that is no row; None if it is a row. raw: its text."""
    if not isinstance(found, dict):
        return NO_OBJECT
    return HALF_A_CHARACTER if _ESCAPED_HALF.search(raw) and _half_a_character(found) else None


def _half_a_character(found: Any) -> bool:
    """True if any text in a JSON value has half of a surrogate pair, which is no character."""
    if isinstance(found, str):
        return any("\ud800" <= sign <= "\udfff" for sign in found)
    if isinstance(found, dict):
        found = [*found, *found.values()]
    return isinstance(found, list) and any(_half_a_character(part) for part in found)


def found_in(raw: str, names: Iterable[str]) -> dict[str, Any]:
    """Return, by name, the first text or number that follows each of these names in a line that is no JSON object."""
    found: dict[str, Any] = {}
    for name in names:
        said = re.search(rf'"{re.escape(name)}"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*)', raw)
        with suppress(Malformed, ArithmeticError):
            found |= {name: parse_json(f"[{said[1]}]")[0]} if said else {}
    return found


def printable(raw: str) -> str:
    """Return a row's text as Parquet can hold it: with escapes for characters that UTF-8 cannot encode."""
    return raw if raw.isascii() else raw.encode("utf-8", "backslashreplace").decode()


CHUNK = 2_000
CHUNK_SIZE = 4 << 20
LONGEST_ROW = 2 << 20


@dataclass(slots=True)
class Chunk:
    """Up to two thousand rows in the order of the file, or fewer long ones. Some may have a fault.

    dropped: the last lines of rows that were removed.
    """

    rows: list[SourceRow] = field(default_factory=list)
    size: int = 0
    dropped: list[int] = field(default_factory=list)

    @property
    def good(self) -> list[SourceRow]:
        """Return the rows without a fault."""
        return [row for row in self.rows if row.fault is None]

    def add(self, row: SourceRow) -> None:
        self.rows.append(row)
        self.size += len(row.raw)

    def take_out(self, places: Iterable[int]) -> list[SourceRow]:
        """Remove the rows in these places, and return them."""
        taken = {place: self.rows[place] for place in places}
        if taken:
            self.rows = [row for place, row in enumerate(self.rows) if place not in taken]
            self.dropped += [row.end for row in taken.values()]
        return list(taken.values())

    def set_aside(self, first: int, fault: ValueFault, end: int | None = None) -> None:
        """Give a fault to the sound rows from one place up to another, since they may have been misread."""
        for place, row in enumerate(self.rows[first:end], first):
            if row.fault is None:
                self.rows[place] = row._replace(fault=fault, is_doubtful=True)

    def handed_over(self) -> "Chunk":
        """Return the rows as a chunk of their own, and empty this one."""
        found = Chunk(self.rows, self.size)
        self.rows, self.size = [], 0
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand plain tuples to another process, which takes a third of the time."""
        return _chunk_of, ([*map(tuple, self.rows)],)


def _chunk_of(rows: Iterable[tuple[Any, ...]]) -> Chunk:
    return Chunk([*map(SourceRow._make, rows)])


@dataclass(slots=True)
class LineCounts:
    """The numbers of physical lines of a file: all lines, lines of the header, and blank lines.

    repeats: the lines of rows that repeat the header, as in concatenated files. of_repeats: the number of lines of
    these rows.
    """

    lines: int = 0
    header: int = 0
    blank: int = 0
    repeats: list[int] = field(default_factory=list)
    of_repeats: int = 0


class Notice(NamedTuple):
    """A warning about a line, or about the file, separate from the checks of single records."""

    line: int | None
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class LineNames:
    """Names for lines: the number; in an archive of several files, the file and the line in it.

    ends: by file, its name and the number of its last line, counted through all files.
    """

    ends: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return len(self.ends) > 1

    def of(self, line: int) -> str:
        """Return the words by which a person finds a line."""
        if not self:
            return f"line {line}"
        place = min(bisect_left(self.ends, line, key=itemgetter(1)), len(self.ends) - 1)
        return f"{self.ends[place][0]}, line {line - (self.ends[place - 1][1] if place else 0)}"


def filled(rows: Iterable[None], chunk: Chunk) -> Iterator[Chunk]:
    """Yield a chunk each time that it is full, and the rest at the end. rows: adds a row at each step."""
    for _ in rows:
        if len(chunk.rows) >= CHUNK or chunk.size >= CHUNK_SIZE:
            yield chunk.handed_over()
    yield chunk


class RowReader(ABC):
    """A received file, read once from its beginning, as `with ... as reader`.

    * feed: the format of its rows; for corrected rejects it may differ from the feed of the rejects.
    * header: the names of the columns, None for objects. header_text: the header's line as a CSV has it.
    * answers: by line, the ids of the rejects that a row answers.
    * noticed: warnings, complete once all rows were read.
    * held: closed at the end.

    Header and rows do not contain the columns that mark rejects.
    """

    def __init__(self, name: str, feed: FeedFile) -> None:
        self.name, self.feed = name, feed
        self.held = ExitStack()
        self.header: list[str] | None = None
        self.header_text = ""
        self.counted = LineCounts()
        self.answers: dict[int, str] = {}
        self.noticed: list[Notice] = []

    @property
    def width(self) -> int:
        """Return the number of fields of a row; without a header, the greatest number so far."""
        return len(self.header or ())

    @property
    def places(self) -> LineNames:
        """Return the names of lines, complete once all rows were read."""
        return LineNames()

    def place(self, line: int) -> str:
        """Return the name of a line among the rows read so far."""
        return self.places.of(line)

    @property
    def is_answer(self) -> bool:
        """True if the rows of a CSV name rejects that they answer, so that a person has looked at them."""
        return False

    @property
    def has_mark(self) -> bool:
        """True if the file begins with the byte order mark of UTF-8."""
        return False

    def first_lines(self) -> Sequence[str]:
        """Return the beginning of a text file, read anew; empty for other files."""
        return ()

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in chunks."""
        chunk = Chunk()
        return filled(self.fill(chunk), chunk)

    def fill(self, chunk: Chunk) -> Iterator[None]:
        """Put the rows into a chunk, one at each step."""
        raise NotImplementedError

    @abstractmethod
    def open(self) -> None:
        """Go to the first row. Raises Unreadable."""

    def __enter__(self) -> Self:
        with self.held:
            self.open()
            self.held = self.held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()
