"""Sources that are tables and no text: numbered rows of cells, handed over as a CSV would be.

A cell is the text that a CSV would have. A row's raw text, as exported for a reject, is a line of plain CSV.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.feeds.reading.chunks import LONGEST_ROW, Chunk, RowReader, SourceRow
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.reading.reject_marks import REJECT_ID, csv_text
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile, position_header
from pipelines.feeds.terms.texts import composed_text
from pipelines.home.batch import UnreadableFile

PLAIN_CSV: dict[str, Any] = {"delimiter": ",", "quote": '"', "escape": "", "skip_spaces": False, "encoding": "utf-8"}


class TableRow(NamedTuple):
    """A row of a table. fault: why it cannot be read as it is."""

    line: int
    cells: list[str]
    fault: ValueFault | None = None


class TableReader(RowReader):
    """A reader of a table. feed: the format of its rows as CSV."""

    def __init__(self, name: str, feed: FeedFile) -> None:
        super().__init__(name, feed.model_copy(update=PLAIN_CSV))
        self._own = feed
        self._dialect = dialect(self.feed)
        self.header = []

    @abstractmethod
    def rows(self) -> Iterator[TableRow]:
        """Yield the rows after the header that are not empty."""

    @property
    def has_mark(self) -> bool:
        """True: spreadsheet programs, which open exported rejects, misread UTF-8 without a mark."""
        return True

    def take_header(self, names: Sequence[str]) -> None:
        """Take these as the names of the columns."""
        self.header = [composed_text(name.strip()) for name in names]
        self.header_text = self.text_of(names)
        if REJECT_ID in self.header:
            raise UnreadableFile(f"{self.name}: corrected rejects are put in as CSV; save the file as CSV UTF-8")

    def take_positions(self, width: int) -> None:
        """Name the columns `#1`, `#2`, ... if there is no header."""
        self.header = position_header(self._own, width)

    def text_of(self, cells: Sequence[str]) -> str:
        return csv_text(cells, self._dialect) + "\r\n"

    def fill(self, chunk: Chunk) -> Iterator[None]:
        for line, cells, fault in self.rows():
            text = self.text_of(cells)
            if len(text) > LONGEST_ROW:
                raise UnreadableFile(f"{self.name}: row {line:,} is longer than 2 MiB; check that it is an export")
            chunk.add(SourceRow(cells, line, 1, text, fault))
            yield


class TableFileReader(TableReader):
    """A reader of a table in a file with numbers that are no texts."""

    def __init__(self, path: Path, name: str, feed: FeedFile) -> None:
        super().__init__(name, feed)
        self._path, self._numbers = path, feed.numbers
