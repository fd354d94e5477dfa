"""A second table of a file below the first, such as one of refunds: a title or a header of its own announces it."""

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.reading.chunks import Chunk, RowReader
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.totals import announces_no_payments, filled, is_aside, is_title

REPEATED_HEADER = "LEDGER-25"
REPEATS = "the row repeats the header, as in a file that was put together; it is no record"


class SecondTables:
    """Rejects rows that may be other records than those above.

    They are below a header that comes again behind a title, below a header with other columns or another order of
    them, or, among payments, below a title that says that no payments follow. The title is one of the rows right above
    that are no records: ragged, or mostly empty. A page number, a total or a line that `[skip]` leaves out is no title.
    In an archive, each file begins anew.
    """

    def __init__(self, reader: RowReader) -> None:
        self._reader, self._files, self._seen = reader, 0, 0
        self._open = 0
        """The line of a title among the last rows, if these are no records and no header has come since."""
        self._title = 0
        self._other: Fault | None = None
        """The reason to reject all rows, once another table has begun without the header."""
        self._names = frozenset(name.strip() for name in reader.header or () if name.strip())

    def take(self, chunk: Chunk) -> None:
        """Look at the next rows; those of a second table become bad ones."""
        if (files := len(self._reader.places.ends)) != self._files:
            self._files, self._open, self._title, self._other = files, 0, 0, None
        if self._other:
            _reject(chunk, 0, self._other)
        below = 0 if self._title else self._begins(chunk)
        if self._title:
            _reject(chunk, below, announced(self._title))
        if not self._other and (found := self._announced(chunk)):
            line, fault = found
            _reject(chunk, line, fault)
            self._other = None if self._title else fault

    def _announced(self, chunk: Chunk) -> tuple[int, Fault] | None:
        """The first line that begins another table without the header, and the reason to reject what is below it."""
        found = [(chunk.line[place], other_columns(chunk.line[place])) for place in self._headers(chunk.rows)][:1]
        if self._reader.feed.kind == "payments":
            found += [(line, no_payments(line)) for line in _titles_of_no_payments(chunk)]
        return min(found, default=None, key=itemgetter(0))

    def _headers(self, rows: Sequence[Sequence[str]]) -> Iterator[int]:
        """The places of rows that name columns: several names of the header, no fewer than a third of the cells, and no
        values. A row that has no other texts than the header at any place goes on with its columns."""
        is_apart = self._names.isdisjoint
        ticks: frozenset[str] | None = None
        for place, row in enumerate(rows):
            if not is_apart(row):
                named = self._names.intersection(row)
                if len(named) > 1 and len(named) * 3 >= filled(row) and not self._has_values(row):
                    ticks = self._ticks(rows) if ticks is None else ticks
                    if self._is_other(row, ticks):
                        yield place

    def _has_values(self, row: Sequence[str]) -> bool:
        """True if a cell is no name: it is a number, or has digits as an id or a date has them."""
        return any(_NUMBER.fullmatch(cell) if cell in self._names else _is_figured(cell) for cell in row)

    def _is_other(self, row: Sequence[str], ticks: frozenset[str]) -> bool:
        """True if a row has several names of the header that are no ticks, and not all of its texts where they are."""
        cells = [(cell.strip(), name.strip()) for cell, name in zip(row, self._reader.header or (), strict=False)]
        named = {cell for cell, name in cells if cell in self._names and not (cell == name and cell in ticks)}
        return len(named) > 1 and any(cell and cell != name for cell, name in cells)

    def _ticks(self, rows: Sequence[Sequence[str]]) -> frozenset[str]:
        """The names of columns in which their own name stands in several rows, and nothing else: a box to tick."""
        names = [name.strip() for name in self._reader.header or ()]
        columns = ((name, [row[at].strip() for row in rows if at < len(row)]) for at, name in enumerate(names) if name)
        return frozenset(name for name, found in columns if found.count(name) > 1 and {*found} <= {name, ""})

    def _begins(self, chunk: Chunk) -> int:
        """The line of a header behind a title, whose line is kept; 0 for none."""
        headers = self._reader.counted.repeats[self._seen :]
        self._seen += len(headers)
        asides = _Asides(chunk, self._reader.width) if headers or _ends_aside(chunk, self._reader.width) else None
        after = 0
        for header in headers:
            self._title = asides.title(after, header, self._open) if asides else 0
            if self._title:
                return header
            self._open, after = 0, header
        self._open = asides.title(after, sys.maxsize, self._open) if asides else 0
        return 0


def _is_figured(text: str) -> bool:
    """True if a text has digits, other than behind words as `icd10` and `Address 2` have them."""
    return any(map(str.isdigit, text)) and not _NUMBERED_NAME.fullmatch(text.strip())


_NUMBER = re.compile(r"[\W_]*\d[\W\d_]*")
_NUMBERED_NAME = re.compile(r"[^\W\d]{3,}(?: [^\W\d]+)* ?\d{1,2}")


class _Asides:
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


def _titles_of_no_payments(chunk: Chunk) -> Iterator[int]:
    """The lines of titles below which no payments are to be expected."""
    for row in chunk.bad:
        if row.is_ragged and announces_no_payments(row.cells or [row.raw]):
            yield row.line
    for line, cells in zip(chunk.line, chunk.rows, strict=True):
        if cells.count("") * 2 >= len(cells) and announces_no_payments(cells) and filled(cells) == 1:
            yield line


def usual(rows: Sequence[Sequence[str]], width: int) -> int:
    """How many cells a record fills: three in four rows fill at most so many. Rows of one cell alone say nothing."""
    counts = sorted(map(filled, rows))
    counts = [count for count in counts if count > 1] or counts
    return counts[len(counts) * 3 // 4] if counts else width


def _ends_aside(chunk: Chunk, width: int) -> bool:
    """True if the last row of a chunk may be no record, or if there is none."""
    if chunk.bad or not chunk.rows:
        return True
    return is_aside(chunk.rows[-1], width)


def _has_digits(cells: Sequence[str]) -> bool:
    return any(sign.isdigit() for cell in cells for sign in cell)


def _reject(chunk: Chunk, below: int, fault: Fault) -> None:
    """Make the rows below a line bad ones."""
    first = bisect_left(chunk.line, below)
    for row, line, lines, raw in zip(
        chunk.rows[first:], chunk.line[first:], chunk.lines[first:], chunk.raw[first:], strict=True
    ):
        chunk.bad.append(BadRow(line, lines, raw, fault, row, is_doubtful=True))
    for held in (chunk.rows, chunk.line, chunk.lines, chunk.raw):
        del held[first:]


def other_columns(line: int) -> Fault:
    """The fault of a row below a line that names columns otherwise than the header."""
    return Fault(
        REPEATED_HEADER,
        f"line {line} names columns otherwise than the header does: it and the rows below may be of another table; "
        "if they are of the same, put them in again as they are",
    )


def no_payments(line: int) -> Fault:
    """The fault of a row below a title of rows that are no payments."""
    return Fault(
        REPEATED_HEADER,
        f"line {line} is a title that says of the rows below it that they are no payments received; "
        "if they are, leave the title out by [skip] in the feed file, or put the row in again as it is",
    )


def announced(line: int) -> Fault:
    """The fault of a row of a second table. line: that of its title."""
    return Fault(
        REPEATED_HEADER,
        f"line {line} is a title, and the header comes again below it: the row may be of another table; "
        "if it is of the same, leave the title out by [skip] in the feed file, or put the row in again as it is",
    )
