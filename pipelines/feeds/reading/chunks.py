"""Rows in chunks: readers hand over a few thousand at a time, each row with its line and its raw text."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Self

from pipelines.feeds.reading.row_faults import SourceRow
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile

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
