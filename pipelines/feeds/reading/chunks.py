"""Rows as readers hand them over: some thousand at a time, each with its line and its own text."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Self

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.schema import FeedFile

CHUNK = 2_000
CHUNK_SIZE = 4 << 20
LONGEST_ROW = 2 << 20


@dataclass(slots=True)
class Chunk:
    """Some thousand rows, or fewer long ones.

    line: the physical line that each begins at; lines: how many it has; raw: its own text. dropped: the last lines of
    rows that were taken out.
    """

    rows: list[Any] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    size: int = 0
    dropped: list[int] = field(default_factory=list)

    @property
    def _held(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        return self.rows, self.line, self.lines, self.raw

    @property
    def room(self) -> int:
        """The number of rows that it takes until it is full."""
        return CHUNK - len(self.rows) - len(self.bad)

    def add(self, row: Any, line: int, lines: int, raw: str) -> None:
        self.rows.append(row)
        self.line.append(line)
        self.lines.append(lines)
        self.raw.append(raw)
        self.size += len(raw)

    def add_lines(self, rows: Sequence[Any], line: int, raw: Sequence[str]) -> None:
        """Add rows of one line each, the first of them on this line."""
        self.rows += rows
        self.line += range(line, line + len(rows))
        self.lines += [1] * len(rows)
        self.raw += raw
        self.size += sum(map(len, raw))

    def each(self) -> Iterator[tuple[Any, int, int, str]]:
        """Each row with its line, the number of its lines, and its own text."""
        return zip(self.rows, self.line, self.lines, self.raw, strict=True)

    def part(self, places: Sequence[int]) -> "Chunk":
        """Return the rows in these places as a chunk."""
        return Chunk(*([held[place] for place in places] for held in self._held))  # type: ignore[arg-type]

    def drop(self, place: int) -> int:
        """Take a row out; return the number of its lines."""
        lines = self.lines[place]
        self.dropped.append(self.line[place] + lines - 1)
        for held in self._held:
            del held[place]
        return lines

    def put_back(self, taken: "Chunk") -> None:
        """Put rows that were taken out among the others, by their lines."""
        self.bad += taken.bad
        for row in taken.each():
            place = bisect_left(self.line, row[1])
            for held, one in zip(self._held, row, strict=True):
                held.insert(place, one)

    def set_aside(self, first: int, fault: Fault, end: int | None = None) -> None:
        """Make bad rows of those from a place on, or up to another, which may have been misread."""
        rows = list(self.each())[first:end]
        self.bad += [BadRow(line, lines, raw, fault, row, is_doubtful=True) for row, line, lines, raw in rows]
        for held in self._held:
            del held[first:end]

    def drop_bad(self, row: BadRow) -> None:
        """Take a row out that could not be read."""
        self.dropped.append(row.line + row.lines - 1)
        self.bad = [other for other in self.bad if other is not row]

    def handed_over(self) -> "Chunk":
        """Return the rows held as a chunk of their own, and empty this one."""
        found = Chunk(*self._held, self.bad, self.size)
        self.rows, self.line, self.lines, self.raw, self.bad, self.size = [], [], [], [], [], 0
        return found


@dataclass(slots=True)
class Counted:
    """Physical lines of a file: all, those of its header, those without anything on them.

    repeats: the lines of rows that repeat the header, as files have that were put together, and how many these are.
    """

    lines: int = 0
    header: int = 0
    blank: int = 0
    repeats: list[int] = field(default_factory=list)
    of_repeats: int = 0


class Notice(NamedTuple):
    """A warning about a line, or about the file, noted apart from the checks of single records."""

    line: int | None
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Places:
    """Names lines: by their number, and in an archive of several files by the file and the line in it.

    ends: by file, its name and the number of the last line in it, counted through all files.
    """

    ends: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return len(self.ends) > 1

    def of(self, line: int) -> str:
        """Return a line as a person finds it."""
        if not self:
            return f"line {line}"
        place = min(bisect_left(self.ends, line, key=itemgetter(1)), len(self.ends) - 1)
        return f"{self.ends[place][0]}, line {line - (self.ends[place - 1][1] if place else 0)}"


def filled(rows: Iterable[None], chunk: Chunk) -> Iterator[Chunk]:
    """Yield a chunk each time that it is full, and what is left in it at the end. rows: puts a row in at each step."""
    for _ in rows:
        if chunk.room <= 0 or chunk.size >= CHUNK_SIZE:
            yield chunk.handed_over()
    yield chunk


class RowReader(ABC):
    """A received file, read once from its beginning, as `with ... as reader`.

    feed: how its rows are written, which of corrected rejects may be another than their feed's. header: the names of
    the columns, None for objects; header_text: their line as a CSV has it. answers: by line, the ids of the rejects
    that a row says it answers. noticed: warnings, once all rows were read. The marks of rejects are in none of these.
    """

    def __init__(self, name: str, feed: FeedFile) -> None:
        self.name, self.feed = name, feed
        self.header: list[str] | None = None
        self.header_text = ""
        self.counted = Counted()
        self.answers: dict[int, str] = {}
        self.noticed: list[Notice] = []

    @property
    def width(self) -> int:
        """The number of fields of a row; without a header, as far as it is known yet."""
        return len(self.header or ())

    @property
    def places(self) -> Places:
        """Names the lines, once all rows were read."""
        return Places()

    def place(self, line: int) -> str:
        """Name a line of the rows that were read up to now."""
        return self.places.of(line)

    @property
    def is_answer(self) -> bool:
        """True if the rows of a CSV name rejects that they answer: somebody has looked at them."""
        return False

    @property
    def has_mark(self) -> bool:
        """True if the file begins with the byte order mark of UTF-8."""
        return False

    def first_lines(self) -> Sequence[str]:
        """The beginning of a file of text, read anew; nothing of any other."""
        return ()

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some thousand at a time."""
        chunk = Chunk()
        return filled(self.fill(chunk), chunk)

    def fill(self, chunk: Chunk) -> Iterator[None]:
        """Put the rows into a chunk, one at each step."""
        raise NotImplementedError

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...
