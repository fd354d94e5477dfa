"""Sources that are tables and no text: rows of cells with a number each, handed over as a CSV would be.

A cell is the text that a CSV would have. A row's own text, in which a reject goes back, is a line of plain CSV.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.reading.chunks import CHUNK, CHUNK_SIZE, LONGEST_ROW, Chunk, Counted, Notice, Places
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.reading.marks import REJECT_ID, csv_text
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.names import named_columns, position
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed
from pipelines.home.batch import Unreadable

PLAIN_CSV: dict[str, Any] = {"delimiter": ",", "quote": '"', "escape": "", "skip_spaces": False, "encoding": "utf-8"}


class TableRow(NamedTuple):
    """A row of a table. fault: why it cannot be read as it is."""

    line: int
    cells: list[str]
    fault: Fault | None = None


class TableReader(ABC):
    """A `RowReader` of a table. Its feed is how a CSV of its rows is written. held: what is closed at the end."""

    has_mark = True
    is_answer = False

    def __init__(self, name: str, feed: FeedFile) -> None:
        self.name, self._own = name, feed
        self.feed = feed.model_copy(update=PLAIN_CSV)
        self._dialect = dialect(self.feed)
        self.held = ExitStack()
        self.counted = Counted()
        self.answers: dict[int, str] = {}
        self.noticed: list[Notice] = []
        self.places = Places()
        self.header: list[str] | None = []
        self.header_text = ""

    @abstractmethod
    def open(self) -> None:
        """Find the header. Raises Unreadable."""

    @abstractmethod
    def rows(self) -> Iterator[TableRow]:
        """The rows behind the header that have something in them."""

    def __enter__(self) -> Self:
        with self.held:
            self.open()
            self.held = self.held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    @property
    def width(self) -> int:
        return len(self.header or ())

    def take_header(self, names: Sequence[str]) -> None:
        """Take these as the names of the columns."""
        self.header = [composed(name.strip()) for name in names]
        self.header_text = self.text_of(names)
        if REJECT_ID in self.header:
            raise Unreadable(f"{self.name}: corrected rejects are put in as CSV; save the file as CSV UTF-8")

    def take_positions(self, width: int) -> None:
        """Name the columns `#1`, `#2`, ... where there is no header."""
        most = max((position(name) or 0 for name in named_columns(self._own)), default=0)
        self.header = [f"#{place}" for place in range(1, max(most, width) + 1)]

    def text_of(self, cells: Sequence[str]) -> str:
        return csv_text(cells, self._dialect) + "\r\n"

    def first_lines(self) -> Sequence[str]:
        return ()

    def chunks(self) -> Iterator[Chunk]:
        chunk = Chunk()
        for line, cells, fault in self.rows():
            text = self.text_of(cells)
            if len(text) > LONGEST_ROW:
                raise Unreadable(f"{self.name}: row {line:,} is longer than 2 MiB; check that it is an export")
            if fault:
                chunk.bad.append(BadRow(line, 1, text, fault, cells))
            else:
                chunk.add(cells, line, 1, text)
            if len(chunk.rows) + len(chunk.bad) >= CHUNK or chunk.size >= CHUNK_SIZE:
                yield chunk.handed_over()
        yield chunk
