"""A second table of a file below the first, such as one of refunds: a title or a header of its own announces it."""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.reading.chunks import Chunk, Notice, RowReader
from pipelines.feeds.reading.headings import Headings, is_heading_of_rows
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.totals import filled, is_aside, is_title

REPEATED_HEADER = "LEDGER-25"
REPEATS = "the row repeats the header, as in a file that was put together; it is no record"
BETWEEN = "TEXT-BETWEEN"
IsLeftOut = Callable[[Sequence[str]], bool]
"""True if `[skip]` leaves a row of these cells out."""


class _Aside(NamedTuple):
    """A row that may be no record, with the last line of the row before it; 0 for none."""

    line: int
    cells: Sequence[str]
    before: int


_FEW = 3
"""Cells that a title fills at most."""


class SecondTables:
    """Rejects rows that may be other records than those above.

    They are below a header that comes again behind a title, below a row that names other columns or another order, and,
    among payments, below a title: only a person knows that `Downtown` is a place and `Bounced checks` are no payments.
    A page number, a total or a line that `[skip]` leaves out is no title. Of other texts between rows the first is
    noted. With `one_table` in the feed nothing is looked for. In an archive, each file begins anew.

    joined: the name of a second file, whose rows are joined to payments and are none.
    """

    def __init__(self, reader: RowReader, is_left_out: IsLeftOut | None = None, joined: str = "") -> None:
        self._reader, self._is_left_out, self._files, self._seen = reader, is_left_out, 0, 0
        self._open = 0
        """The line of a title among the last rows, if these are no records and no header has come since."""
        self._title = 0
        self._other: Fault | None = None
        """The reason to reject all rows, once another table has begun without the header."""
        self._headings = Headings(reader.header or ())
        self._joined = joined
        self._of_payments = reader.feed.kind == "payments" and not joined
        self._texts: list[int] = []
        """The lines of texts that may be titles, until a row comes below them; then the first is noted."""
        self._has_rows = False
        self._last = 0
        self._between = 0

    def take(self, chunk: Chunk) -> None:
        """Look at the next rows; those of a second table become bad ones."""
        if self._reader.feed.one_table:
            return
        hidden = _taken_out(chunk, self._is_left_out) if self._is_left_out else None
        self._take(chunk)
        if hidden:
            _put_back(chunk, hidden)

    def notices(self) -> Iterator[Notice]:
        """Once all rows came, what is to be said of texts between rows that were taken."""
        if self._between:
            yield Notice(self._between, BETWEEN, _BETWEEN)

    def _take(self, chunk: Chunk) -> None:
        if (files := len(self._reader.places.ends)) != self._files:
            self._files, self._open, self._title, self._other, self._last = files, 0, 0, None, 0
            self._has_rows = False
            self._texts.clear()
        if self._other:
            _reject(chunk, 0, self._other)
        below = 0 if self._title else self._begins(chunk)
        if self._title:
            _reject(chunk, below, announced(self._place(self._title)))
        asides = list(self._asides(chunk))
        if not self._other and (found := self._announced(chunk, asides)):
            line, fault = found
            _reject(chunk, line, fault)
            self._other = None if self._title else fault
        self._note_texts(chunk, asides)

    def _announced(self, chunk: Chunk, asides: Sequence[_Aside]) -> tuple[int, Fault] | None:
        """The first line that begins another table without the header, and the reason to reject what is below it."""
        place = self._place
        found = [(chunk.line[at], other_columns(place(chunk.line[at]))) for at in self._headings.places(chunk.rows)]
        ragged = (row for row in chunk.bad if row.is_ragged and row.cells)
        found += [(row.line, other_columns(place(row.line))) for row in ragged if self._is_header(row)]
        if self._of_payments:
            found += [(line, titled(place(line))) for line in self._titles(chunk, asides)]
        return min(found, default=None, key=itemgetter(0))

    def _place(self, line: int) -> str:
        place = self._reader.place(line)
        return f"{self._joined}, {place}" if self._joined else place

    def _is_header(self, row: BadRow) -> bool:
        return self._headings.is_of_others(row.cells or ())

    def _titles(self, chunk: Chunk, asides: Sequence[_Aside]) -> Iterator[int]:
        """The lines of titles among the rows of a chunk."""
        usually = max(usual(chunk.rows, self._reader.width), 2) if asides else 0
        if self._reader.feed.header == 0 and not self._has_rows:
            # What stands above all rows, where no header does, is the title of the file.
            few = {aside.line for aside in asides}
            first = next((line for line in chunk.line if line not in few), None)
            self._has_rows = first is not None
            asides = [aside for aside in asides if first and aside.line > first]
        for line, cells, before in asides:
            if is_heading_of_rows(cells, usually, is_apart=0 < before < line - 1):
                yield line

    def _asides(self, chunk: Chunk) -> Iterator[_Aside]:
        """Rows of few cells that may be no records."""
        texts = {row.line: row.cells or [row.raw] for row in chunk.bad if row.is_ragged}
        rows = zip(chunk.line, chunk.rows, strict=True)
        texts |= {
            line: row for line, row in rows if len(row) - _FEW <= (empty := row.count("")) and empty * 2 >= len(row)
        }
        if texts:
            ends = [line + lines - 1 for line, lines in zip(chunk.line, chunk.lines, strict=True)]
            ends = sorted([*ends, *(row.line + row.lines - 1 for row in chunk.bad)])
        for line in sorted(texts):
            at = bisect_left(ends, line)
            yield _Aside(line, texts[line], ends[at - 1] if at else self._last)

    def _note_texts(self, chunk: Chunk, asides: Sequence[_Aside]) -> None:
        """Keep the first line of a text that is no record, if rows are taken below it."""
        last = max([*chunk.line[-1:], *(row.line for row in chunk.bad[-1:])], default=self._last)
        if not self._between and (asides or self._texts):
            usually = max(usual(chunk.rows, self._reader.width), 2)
            of_text = (each for each in asides if filled(each.cells) * 2 <= usually and is_title(each.cells))
            self._texts += [line for line, cells, _ in of_text if filled(cells) == 1 or not _has_digits(cells)]
            below = chunk.line[-1] if chunk.line else 0
            self._between = next((line for line in self._texts if line < below), 0)
        self._last = last

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


def _taken_out(chunk: Chunk, is_left_out: IsLeftOut) -> Chunk | None:
    """Take the rows out that the feed leaves out; None where there are none."""
    places = [place for place, row in enumerate(chunk.rows) if is_left_out(row)]
    bad = [row for row in chunk.bad if row.is_ragged and is_left_out(row.cells or ())]
    if not places and not bad:
        return None
    hidden = Chunk(bad=bad)
    for place in places:
        hidden.add(chunk.rows[place], chunk.line[place], chunk.lines[place], chunk.raw[place])
    for place in reversed(places):
        chunk.drop(place)
    chunk.bad = [row for row in chunk.bad if all(row is not other for other in bad)]
    return hidden


def _put_back(chunk: Chunk, hidden: Chunk) -> None:
    """Put rows back among those of a chunk, by their lines."""
    chunk.bad += hidden.bad
    for row, line, lines, raw in zip(hidden.rows, hidden.line, hidden.lines, hidden.raw, strict=True):
        place = bisect_left(chunk.line, line)
        chunk.rows.insert(place, row)
        chunk.line.insert(place, line)
        chunk.lines.insert(place, lines)
        chunk.raw.insert(place, raw)


_MENDS = "if they are of the same, say one_table = true in the feed file"


def other_columns(place: str) -> Fault:
    """The fault of a row below a line that names columns otherwise than the header. place: of that line."""
    return Fault(
        REPEATED_HEADER,
        f"{place} names columns otherwise than the header does: it and the rows below may be of another table;"
        f" {_MENDS}",
    )


def titled(place: str) -> Fault:
    """The fault of a payment below a title. place: of the title."""
    return Fault(
        REPEATED_HEADER,
        f"{place} is a title, and the rows below it may be no payments received; {_MENDS}, or leave the title out by"
        " [skip]",
    )


def announced(place: str) -> Fault:
    """The fault of a row of a second table. place: of its title."""
    return Fault(
        REPEATED_HEADER,
        f"{place} is a title, and the header comes again below it: the row may be of another table; {_MENDS}, or leave"
        " the title out by [skip]",
    )


_BETWEEN = (
    "a text between rows that is no record; those below it were taken as of the same table: if it is a title of other"
    " records, take it and them out of the file"
)
