"""Rows of few cells in a chunk: titles, totals, notes, or records that lack most of their values."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.terms.totals import filled_cells, is_aside, is_title

_FEW = 3
"""The most cells that a title fills."""


class AsideRow(NamedTuple):
    """A row that may be no record. is_apart: True if a blank line is above it."""

    line: int
    cells: Sequence[str]
    is_apart: bool


def asides_of(chunk: Chunk, blank_above: "BlankAbove") -> Iterator[AsideRow]:
    """Yield the rows of few cells."""
    for row in chunk.rows:
        if row.is_ragged if row.fault else _has_few(row.cells):
            yield AsideRow(row.line, row.cells or [row.raw], is_apart=blank_above(row.line))


def _has_few(cells: Sequence[str]) -> bool:
    return len(cells) - _FEW <= (empty := cells.count("")) and empty * 2 >= len(cells)


class BlankAbove:
    """A test for a blank line above a line of a chunk. It computes nothing before its first use.

    headers: the lines on which the header repeats. last: the last line before the chunk.
    """

    def __init__(self, chunk: Chunk, headers: Sequence[int], last: int) -> None:
        self._chunk, self._headers, self._last = chunk, headers, last

    def __call__(self, line: int) -> bool:
        at = bisect_left(self._ends, line)
        before = self._ends[at - 1] if at else self._last
        return 0 < before < line - 1

    @cached_property
    def _ends(self) -> list[int]:
        return sorted([*(row.end for row in self._chunk.rows), *self._chunk.dropped, *self._headers])


def last_line(chunk: Chunk, before: int) -> int:
    """Return the last line of a chunk's rows, including the rows that were dropped from it."""
    return max([before, *(row.end for row in chunk.rows[-1:]), *chunk.dropped])


def usual(chunk: Chunk, width: int) -> int:
    """Return the usual number of filled cells: three of four rows fill no more. Rows of one cell do not count."""
    counts = sorted(filled_cells(row.cells) for row in chunk.good)
    counts = [count for count in counts if count > 1] or counts
    return counts[len(counts) * 3 // 4] if counts else width


def ends_aside(chunk: Chunk, width: int) -> bool:
    """True if the last row of a chunk may be no record, or if the chunk has no row."""
    return not chunk.rows or any(row.fault for row in chunk.rows) or is_aside(chunk.rows[-1].cells, width)


class RowsByLine:
    """The rows of a chunk by line, to look for titles among rows that are no records."""

    def __init__(self, chunk: Chunk, width: int) -> None:
        self._rows = chunk.rows
        self._lines = [row.line for row in chunk.rows]
        self._usual = usual(chunk, width)

    def title(self, after: int, before: int, earlier: int) -> int:
        """Return the line of a title among the last rows between two lines, 0 for none.

        earlier: the line of a title directly above the chunk, if any.
        """
        first = bisect_right(self._lines, after)
        for place in reversed(range(first, bisect_left(self._lines, before))):
            row = self._rows[place]
            cells = row.cells or [row.raw]
            is_empty = is_aside(cells, self._usual)
            if not (row.is_ragged or not row.cells or is_empty):
                return 0
            if (is_empty or not has_digits(cells)) and is_title(cells):
                return self._lines[place]
        return earlier if not after else 0


def has_digits(cells: Sequence[str]) -> bool:
    return any(sign.isdigit() for cell in cells for sign in cell)
