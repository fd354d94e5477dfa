"""A second table of a CSV under the same header, such as one of refunds: a line of its own announces it."""

import sys
from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.totals import is_title

REPEATED_HEADER = "LEDGER-25"


class SecondTables:
    """Rejects rows below a header that comes again behind a title: they may be other records than those above.

    repeats: the lines on which the header comes again, as far as the file has been read. A page number, a total or a
    line that `[skip]` leaves out is no title.
    """

    def __init__(self, repeats: Sequence[int]) -> None:
        self._repeats, self._seen = repeats, 0
        self._row: tuple[int, Sequence[str]] = (0, ())
        self._title = 0

    def take(self, chunk: Chunk) -> None:
        """Look at the next rows; those of a second table become bad ones."""
        below = 0 if self._title else self._begins(chunk)
        if self._title:
            first = bisect_left(chunk.line, below)
            fault = announced(self._title)
            for row, line, lines, raw in zip(
                chunk.rows[first:], chunk.line[first:], chunk.lines[first:], chunk.raw[first:], strict=True
            ):
                chunk.bad.append(BadRow(line, lines, raw, fault, row, is_doubtful=True))
            for held in (chunk.rows, chunk.line, chunk.lines, chunk.raw):
                del held[first:]

    def _begins(self, chunk: Chunk) -> int:
        """The line of a header behind a title, whose line is kept; 0 for none."""
        for header in self._repeats[self._seen :]:
            line, cells = self._before(chunk, header)
            if is_title(cells):
                self._title = line
                return header
        self._seen = len(self._repeats)
        self._row = self._before(chunk, sys.maxsize)
        return 0

    def _before(self, chunk: Chunk, line: int) -> tuple[int, Sequence[str]]:
        """The last row before a line, with its fields."""
        found = self._row
        if place := bisect_left(chunk.line, line):
            found = chunk.line[place - 1], chunk.rows[place - 1]
        ragged = [(row.line, row.cells) for row in chunk.bad if row.line < line and row.is_ragged and row.cells]
        return max([found, *ragged], key=itemgetter(0))


def announced(line: int) -> Fault:
    """The fault of a row of a second table. line: that of its title."""
    return Fault(
        REPEATED_HEADER,
        f"line {line} is a title, and the header comes again below it: the row may be of another table; "
        "if it is of the same, leave the title out by [skip] in the feed file, or put the row in again as it is",
    )
