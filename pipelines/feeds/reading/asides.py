"""Rows of few cells among those of a chunk: titles, totals, notes, or records that lack most of what they say."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.terms.totals import filled, is_aside, is_title

_FEW = 3
"""Cells that a title fills at most."""


class Aside(NamedTuple):
    """A row that may be no record. is_apart: whether a blank line is above it."""

    line: int
    cells: Sequence[str]
    is_apart: bool

    @property
    def has_digits(self) -> bool:
        return _has_digits(self.cells)


def asides_of(chunk: Chunk, blank_above: "BlankAbove") -> Iterator[Aside]:
    """Rows of few cells."""
    texts = {row.line: row.cells or [row.raw] for row in chunk.bad if row.is_ragged}
    rows = zip(chunk.line, chunk.rows, strict=True)
    texts |= {line: row for line, row in rows if len(row) - _FEW <= (empty := row.count("")) and empty * 2 >= len(row)}
    for line in sorted(texts):
        yield Aside(line, texts[line], is_apart=blank_above(line))


class BlankAbove:
    """Tells whether a blank line is above a line of a chunk. Nothing is looked at before it is asked.

    headers: the lines on which the header comes again. last: the last line before the chunk.
    """

    def __init__(self, chunk: Chunk, headers: Sequence[int], last: int) -> None:
        self._chunk, self._headers, self._last = chunk, headers, last

    def __call__(self, line: int) -> bool:
        at = bisect_left(self._ends, line)
        before = self._ends[at - 1] if at else self._last
        return 0 < before < line - 1

    @cached_property
    def _ends(self) -> list[int]:
        chunk = self._chunk
        ends = [line + lines - 1 for line, lines in zip(chunk.line, chunk.lines, strict=True)]
        return sorted([*ends, *(row.line + row.lines - 1 for row in chunk.bad), *chunk.dropped, *self._headers])


def last_line(chunk: Chunk, before: int) -> int:
    """The last line of the rows of a chunk, and of those that were dropped from it."""
    ends = [chunk.line[-1] + chunk.lines[-1] - 1] if chunk.line else []
    return max([before, *ends, *(row.line + row.lines - 1 for row in chunk.bad[-1:]), *chunk.dropped])


def usual(rows: Sequence[Sequence[str]], width: int) -> int:
    """The usual number of filled cells: three in four rows fill at most so many. Rows of one cell alone say nothing."""
    counts = sorted(map(filled, rows))
    counts = [count for count in counts if count > 1] or counts
    return counts[len(counts) * 3 // 4] if counts else width


def ends_aside(chunk: Chunk, width: int) -> bool:
    """True if the last row of a chunk may be no record, or if there is none."""
    if chunk.bad or not chunk.rows:
        return True
    return is_aside(chunk.rows[-1], width)


class RowsByLine:
    """The rows of a chunk by their lines, to look for titles among those that are no records."""

    def __init__(self, chunk: Chunk, width: int) -> None:
        good = [(line, row, False) for line, row in zip(chunk.line, chunk.rows, strict=True)]
        bad = [(row.line, row.cells or [row.raw], row.is_ragged or not row.cells) for row in chunk.bad]
        self._rows: list[tuple[int, Sequence[str], bool]] = sorted([*good, *bad], key=itemgetter(0))
        self._lines = [line for line, _, _ in self._rows]
        self._usual = usual(chunk.rows, width)

    def title(self, after: int, before: int, earlier: int) -> int:
        """The line of a title among the last rows between two lines, 0 for none.

        earlier: that of one right above the chunk, if any.
        """
        first = bisect_right(self._lines, after)
        for line, cells, is_ragged in reversed(self._rows[first : bisect_left(self._lines, before)]):
            is_empty = is_aside(cells, self._usual)
            if not (is_ragged or is_empty):
                return 0
            if (is_empty or not _has_digits(cells)) and is_title(cells):
                return line
        return earlier if not after else 0


def _has_digits(cells: Sequence[str]) -> bool:
    return any(sign.isdigit() for cell in cells for sign in cell)
