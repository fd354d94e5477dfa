"""Rows of few cells in a chunk: titles, totals, notes, or records that lack most of their values."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
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

    @property
    def has_digits(self) -> bool:
        return _has_digits(self.cells)


def asides_of(chunk: Chunk, blank_above: "BlankAbove") -> Iterator[AsideRow]:
    """Yield the rows of few cells."""
    texts = {row.line: row.cells or [row.raw] for row in chunk.bad if row.is_ragged}
    rows = zip(chunk.line, chunk.rows, strict=True)
    texts |= {line: row for line, row in rows if len(row) - _FEW <= (empty := row.count("")) and empty * 2 >= len(row)}
    for line in sorted(texts):
        yield AsideRow(line, texts[line], is_apart=blank_above(line))


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
        chunk = self._chunk
        ends = [line + lines - 1 for line, lines in zip(chunk.line, chunk.lines, strict=True)]
        return sorted([*ends, *(row.line + row.lines - 1 for row in chunk.bad), *chunk.dropped, *self._headers])


def last_line(chunk: Chunk, before: int) -> int:
    """Return the last line of a chunk's rows, including the rows that were dropped from it."""
    ends = [chunk.line[-1] + chunk.lines[-1] - 1] if chunk.line else []
    return max([before, *ends, *(row.line + row.lines - 1 for row in chunk.bad[-1:]), *chunk.dropped])


def usual(rows: Sequence[Sequence[str]], width: int) -> int:
    """Return the usual number of filled cells: three of four rows fill no more. Rows of one cell do not count."""
    counts = sorted(map(filled_cells, rows))
    counts = [count for count in counts if count > 1] or counts
    return counts[len(counts) * 3 // 4] if counts else width


def ends_aside(chunk: Chunk, width: int) -> bool:
    """True if the last row of a chunk may be no record, or if the chunk has no row."""
    if chunk.bad or not chunk.rows:
        return True
    return is_aside(chunk.rows[-1], width)


class RowsByLine:
    """The rows of a chunk by line, to look for titles among rows that are no records."""

    def __init__(self, chunk: Chunk, width: int) -> None:
        good = [(line, row, False) for line, row in zip(chunk.line, chunk.rows, strict=True)]
        bad = [(row.line, row.cells or [row.raw], row.is_ragged or not row.cells) for row in chunk.bad]
        self._rows: list[tuple[int, Sequence[str], bool]] = sorted([*good, *bad], key=itemgetter(0))
        self._lines = [line for line, _, _ in self._rows]
        self._usual = usual(chunk.rows, width)

    def title(self, after: int, before: int, earlier: int) -> int:
        """Return the line of a title among the last rows between two lines, 0 for none.

        earlier: the line of a title directly above the chunk, if any.
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
