"""A second table of a file below the first, such as one of refunds, recognized by a title or a header of its own."""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import NamedTuple

from pipelines.feeds.reading.chunks import Chunk, Notice, RowReader, SourceRow
from pipelines.feeds.reading.conditions import Conditions, IsLeftOut
from pipelines.feeds.reading.headings import Headings, OfPayments, is_heading_of_rows
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile, places_of
from pipelines.feeds.terms.totals import filled_cells, is_aside, is_title
from pipelines.home.counted import counted

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


def usual(chunk: Chunk, width: int) -> int:
    """Return the usual number of filled cells: three of four rows fill no more. Rows of one cell do not count."""
    counts = sorted(filled_cells(row.cells) for row in chunk.good)
    counts = [count for count in counts if count > 1] or counts
    return counts[len(counts) * 3 // 4] if counts else width


def title_between(chunk: Chunk, usually: int, after: int, before: int, earlier: int) -> int:
    """Return the line of a title among the last rows between two lines, 0 for none.

    usually: the usual number of filled cells. earlier: the line of a title above all of these rows, if any.
    """
    of = attrgetter("line")
    rows = chunk.rows[bisect_right(chunk.rows, after, key=of) : bisect_left(chunk.rows, before, key=of)]
    for row in reversed(rows):
        cells = row.cells or [row.raw]
        is_empty = is_aside(cells, usually)
        if not (row.is_ragged or not row.cells or is_empty):
            return 0
        if (is_empty or not has_digits(cells)) and is_title(cells):
            return int(row.line)
    return earlier


def has_digits(cells: Sequence[str]) -> bool:
    return any(sign.isdigit() for cell in cells for sign in cell)


REPEATED_HEADER = "LEDGER-25"
REPEATS = "the row repeats the header, as in a file that was put together from several; it is not taken as a record"
BETWEEN = "TEXT-BETWEEN"


@dataclass
class _File:
    """A file that is read in chunks: its header, and the state that the next chunk needs.

    * fault: the reason to reject all rows, once another table has begun.
    * last: the last line so far.
    * title: the line of a title among the last rows, if these are no records and no header has come since.
    * texts: the lines of texts that may be titles, until a row comes below them.
    """

    headings: Headings
    fault: ValueFault | None = None
    last: int = 0
    title: int = 0
    has_rows: bool = False
    texts: list[int] = field(default_factory=list)


class SecondTables:
    """Rejects rows that may be other records than the rows above.

    A second table begins at a repeated header after a title, or at a row that names other columns or another order.
    Among payments it also begins at a title: only a person knows that `Downtown` is a place and `Bounced checks` are no
    payments. A page number, a total, and a line that `[skip]` leaves out are no titles. Other texts between rows are
    noted, the first with its line. Nothing is checked with `one_table` in the feed, among objects, and in a file that
    answers rejects. In an archive, each file is checked separately.

    * file: the feed, if rows that its `[skip]` leaves out are still among the others.
    * joined: the name of a second file, whose rows are joined to payments and are not payments.
    * prefix: the text before the second file's column names.
    """

    def __init__(self, reader: RowReader, file: FeedFile | None = None, joined: str = "", prefix: str = "") -> None:
        self._reader, self._joined = reader, joined
        self._is_left_out = Conditions(file, reader.header, prefix).is_left_out if file and file.skip else None
        answers = reader.is_answer and not joined
        self._is_off = reader.feed.one_table or reader.header is None or answers
        self._files, self._headers = 0, 0
        """The number of files before this one, and the number of repeated headers."""
        self._are_payments = reader.feed.kind == "payments" and not joined
        self._file = self._new_file()
        self._between, self._below = 0, 0
        """The first line of a text between rows that were taken, and the number of rows below it."""

    def _new_file(self) -> _File:
        header = self._reader.header or ()
        return _File(Headings(header, payments=_of_payments(header, self._reader.feed) if self._are_payments else None))

    def over(self) -> Iterator[Chunk]:
        """Yield the chunks of the reader, with the rows of a second table as bad rows."""
        for chunk in self._reader.chunks():
            self.take(chunk)
            yield chunk

    def take(self, chunk: Chunk) -> None:
        """Check the next rows; rows of a second table become bad rows."""
        if self._is_off:
            return
        hidden = _taken_out(chunk, self._is_left_out) if self._is_left_out else []
        self._take(chunk)
        if hidden:
            chunk.rows = sorted([*chunk.rows, *hidden], key=attrgetter("line"))

    def notices(self) -> Iterator[Notice]:
        """Yield the warning about texts between rows that were taken, once all rows were read."""
        if self._between:
            yield Notice(self._between, BETWEEN, text_between_rows(self._below))

    def _take(self, chunk: Chunk) -> None:
        if (files := len(self._reader.places.ends)) != self._files:
            self._files, self._file = files, self._new_file()
        file, headers = self._file, self._reader.counted.repeats[self._headers :]
        self._headers += len(headers)
        blank = BlankAbove(chunk, headers, file.last)
        asides = list(asides_of(chunk, blank))
        last = max([file.last, *(row.end for row in chunk.rows[-1:]), *chunk.dropped])
        if file.fault:
            chunk.set_aside(0, file.fault)
        else:
            begun = sorted([*self._again(chunk, headers), *self._otherwise(chunk, asides, blank)], key=itemgetter(0))
            for line, fault in reversed(begun):
                chunk.set_aside(bisect_left(chunk.rows, line, key=attrgetter("line")), fault)
            file.fault = begun[-1][1] if begun else None
        self._note_texts(chunk, asides)
        file.last = last

    # --- Where another table begins: the line, and the reason to reject what is on it and below -------------------

    def _again(self, chunk: Chunk, headers: Sequence[int]) -> Iterator[tuple[int, ValueFault]]:
        """Yield the first repeated header after a title, with its fault."""
        file, after, width = self._file, 0, self._reader.width
        is_sound = chunk.rows and not any(row.fault for row in chunk.rows)
        if is_sound and not headers and not is_aside(chunk.rows[-1].cells, width):
            file.title = 0
            return
        usually = usual(chunk, width)
        for header in headers:
            if title := title_between(chunk, usually, after, header, file.title):
                yield header, self._fault(_ANNOUNCED, title)
                return
            file.title, after = 0, header
        file.title = title_between(chunk, usually, after, sys.maxsize, file.title)

    def _otherwise(
        self, chunk: Chunk, asides: Sequence[AsideRow], blank: BlankAbove
    ) -> Iterator[tuple[int, ValueFault]]:
        """Yield the first line that begins another table without the header, with its fault."""
        headings = self._file.headings
        good = chunk.good
        named = [*headings.lines([row.cells for row in good], [row.line for row in good], blank)]
        named += [row.line for row in chunk.rows if row.is_ragged and headings.is_of_others(row.cells or ())]
        known = set(named) - headings.unknown
        found = [(line, _OTHER_COLUMNS if line in known else _OTHER_WORDS) for line in named]
        if self._are_payments:
            found += [(line, _TITLED) for line in self._titles(chunk, asides)]
            self._file.texts += headings.alone  # they are no payments, unless their words are those of a header
            headings.alone.clear()
        if found:
            line, said = min(found, key=itemgetter(0))
            yield line, self._fault(said, line)

    def _titles(self, chunk: Chunk, asides: Sequence[AsideRow]) -> Iterator[int]:
        """Yield the lines of titles among the rows of a chunk."""
        usually = max(usual(chunk, self._reader.width), 2) if asides else 0
        if self._reader.feed.header == 0 and not self._file.has_rows:
            # A text above all rows of a file without a header is the title of the file.
            few = {aside.line for aside in asides}
            first = next((row.line for row in chunk.good if row.line not in few), None)
            self._file.has_rows = first is not None
            asides = [aside for aside in asides if first and aside.line > first]
        for line, cells, is_apart in asides:
            if is_heading_of_rows(cells, usually, is_apart=is_apart):
                yield line

    def _note_texts(self, chunk: Chunk, asides: Sequence[AsideRow]) -> None:
        """Keep the first line of a text that is no record, if rows are taken below it."""
        texts = self._file.texts
        if not self._between and (asides or texts):
            usually = max(usual(chunk, self._reader.width), 2)
            of_text = (each for each in asides if filled_cells(each.cells) * 2 <= usually and is_title(each.cells))
            texts += [each.line for each in of_text if filled_cells(each.cells) == 1 or not has_digits(each.cells)]
            last = max((row.line for row in chunk.good), default=0)
            self._between = next((line for line in texts if line < last), 0)
        if self._between:
            self._below += sum(row.line > self._between for row in chunk.good)

    def _fault(self, said: str, line: int) -> ValueFault:
        """Return the fault of a row of another table. line: the line where that table begins."""
        place = self._reader.place(line)
        return ValueFault(REPEATED_HEADER, said.format(place=f"{self._joined}, {place}" if self._joined else place))


def _of_payments(header: Sequence[str], feed: FeedFile) -> OfPayments:
    """Return the places of the columns by which a header in an unknown language is recognized."""
    places = places_of(header)
    values = (feed.columns.get(name) for name in ("payment_id", "amount", "paid_on"))
    return OfPayments(*(places.get(value.column) if value and value.column else None for value in values))


def _taken_out(chunk: Chunk, is_left_out: IsLeftOut) -> list[SourceRow]:
    """Remove the rows that the feed leaves out from the chunk, and return them."""
    rows = enumerate(chunk.rows)
    return chunk.take_out(
        place for place, row in rows if (not row.fault or row.is_ragged) and is_left_out(row.cells or ())
    )


_SAY = "if they are of the same table, set one_table = true in the feed file"
_SAY_OR_SKIP = f"{_SAY}, or leave the title out by [skip]"
_OTHER_COLUMNS = (
    "{place} names the columns differently from the header, so it and the rows below may be of another table; " + _SAY
)
_OTHER_WORDS = _OTHER_COLUMNS + ", and if the line is not a header, leave it out by [skip]"
_TITLED = "{place} is a title, so the rows below it may not be payments received; " + _SAY_OR_SKIP
_ANNOUNCED = "{place} is a title with the header again below it, so the row may be of another table; " + _SAY_OR_SKIP
"""Sentences on the rows from a line on. place: the line of the title, or of the row that names columns."""


def text_between_rows(below: int) -> str:
    """Return the warning about a text between rows. below: the number of rows below it that were taken."""
    rows = counted(below, "row below it was", "rows below it were")
    return (
        f"a text between rows is not a record; the {rows} taken as rows of the same table; if the text is a title of"
        " other records, remove it and them from the file"
    )
