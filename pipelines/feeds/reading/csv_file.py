"""CSV: text to rows of fields, with the physical line that each begins on.

A row that is not understood gets a fault. A file whose rows cannot be told apart is `UnreadableFile`.
"""

import csv
from collections.abc import Iterator
from operator import methodcaller

from pipelines.feeds.reading.chunks import (
    BAD_QUOTING,
    SWALLOWED,
    TORN,
    UNCLOSED,
    Chunk,
    SourceRow,
    is_single_byte,
    is_torn,
    lines_of,
    other_text,
    ragged,
    unreadable,
)
from pipelines.feeds.reading.dialect import dialect, mended, mending_key
from pipelines.feeds.reading.lines import LONGEST_LINE, NOT_ROWS, TextReader
from pipelines.feeds.reading.reject_marks import BAD_ID, DAMAGED, REJECT_ID, Columns
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import named_columns, position_header
from pipelines.feeds.terms.texts import composed_text
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted

MOST_READ_AGAIN = 32 * LONGEST_LINE
MOST_COLUMNS = 100_000
"""A sheet has at most 16,384 columns."""
TELLING = 4
"""The least number of fields that distinguishes a row from a text with commas."""


class CsvReader(TextReader):
    """A reader of CSV."""

    _marks: Columns
    _headers: tuple[list[str], ...] = ()
    _width: int | None = None

    @property
    def width(self) -> int:
        return self._width or len(self.header or ())

    @property
    def is_answer(self) -> bool:
        return bool(self._marks)

    def fill(self, chunk: Chunk) -> Iterator[None]:
        while True:
            try:
                yield from self._good_rows(chunk)
            except csv.Error as error:
                chunk.add(self._wrongly_quoted("field larger" in str(error)))
                yield
            else:
                return

    # --- The header -------------------------------------------------------------------------------

    def open(self) -> None:
        """Go to the first row. Corrected rejects have their header on the first line, whatever their feed says."""
        super().open()
        self._marks = Columns((), self.feed)
        self._start()
        marked = self.feed.header != 1 and self._lines.begins_with(REJECT_ID)
        if self.feed.header or marked:
            self.header = self._read_header(0 if marked else self.feed.header - 1)
            self._width = len(self.header)
        if not self.feed.header:
            self.header = position_header(self.feed)

    def _start(self) -> None:
        """Begin to read fields, first from lines that were put back."""
        self._read = self._lines.read()
        self._csv = csv.reader(self._read, strict=True, **dialect(self.feed))

    def _read_header(self, skip: int) -> list[str]:
        """Return the names of the columns, from the first line after the skipped ones that is not blank."""
        for _ in range(skip):
            next(self._read, None)
        before = self._lines.take()[1]
        try:
            for cells in self._csv:
                _, lines, raw = self._lines.take()
                if not something_in(cells):
                    self.counted.blank += lines + self._lines.skip_breaks()
                    continue
                self.counted.header = before + lines
                if fault := unreadable(raw):
                    raise UnreadableFile(f"{self.name}: the header has {fault.message}")
                if len(cells) > MOST_COLUMNS:
                    raise UnreadableFile(
                        f"{self.name}: the header has {len(cells):,} columns, more than {MOST_COLUMNS:,}; "
                        "check that it is the right file"
                    )
                self._headers = cells, [f"\ufeff{cells[0]}", *cells[1:]]
                return self._own_header([composed_text(cell.strip()) for cell in cells], raw)
        except csv.Error:
            names = [name for name, must in named_columns(self.feed).items() if must]
            mends = mending_key(self.first_lines(), self.feed, names)
            said = f"set {mends} in the feed file, which finds its columns" if mends else NOT_ROWS
            raise UnreadableFile(
                f"{self.name}: the {'first line' if not skip else 'header'} is not a CSV header; {said}"
            ) from None
        if before:
            raise UnreadableFile(
                f"{self.name}: there is no header on line {skip + 1} or below it; check header in the feed file"
            )
        raise UnreadableFile(f"{self.name}: the file is empty; export it again")

    def _own_header(self, names: list[str], raw: str) -> list[str]:
        self._marks, self.header_text = Columns(names, self.feed), raw
        if self._marks:
            _, names, self.header_text = self._marks.off(names, raw)
        return names

    # --- Rows -------------------------------------------------------------------------------------

    @property
    def _quote(self) -> str:
        """Return the quote by which a torn row may be recognized; empty if there is none."""
        return "" if self.feed.escape or self._takes_quotes else self.feed.quote

    @property
    def _takes_quotes(self) -> bool:
        return self.feed.quotes == "as they are"

    def _good_rows(self, chunk: Chunk) -> Iterator[None]:
        """Add the rows up to the next one that is wrongly quoted."""
        width, least = self._width, len(self.header or ())
        taken, take = self._lines.taken, self._lines.take
        takes_quotes, quote, single_byte = self._takes_quotes, self._quote, is_single_byte(self.feed.encoding)
        for found in self._csv:
            swallowed = len(taken) > 1 and self._swallows(len(found))
            if swallowed and len(found) != width:
                raise csv.Error
            line, lines, raw = take()
            if not something_in(found):
                self.counted.blank += lines + self._lines.skip_breaks()
                continue
            if found in self._headers:
                self.counted.repeats.append(line)
                self.counted.of_repeats += lines
                continue
            cells, raw, bad = self._own(line, found, raw) if self._marks else (found, raw, None)
            if width is None and len(cells) >= least:
                self._width = width = len(cells)
            fits = len(cells) == width
            if fits:
                fault = bad or unreadable(raw) or (other_text(raw, self.feed.encoding) if single_byte else None)
            else:
                fault = self._ragged(len(cells), width, raw)
            if fault is None and swallowed and not takes_quotes:
                fault = SWALLOWED
            if fault is None and quote and quote in raw and is_torn(cells, raw, quote):
                fault = TORN
            if fault:
                said = lines_of(fault, line, line + lines - 1)
                doubtful = fault in (SWALLOWED, TORN)
                chunk.add(SourceRow(cells, line, lines, raw, said, doubtful, not (fits or swallowed)))
            else:
                chunk.add(SourceRow(cells, line, lines, raw))
            yield

    def _own(self, line: int, cells: list[str], raw: str) -> tuple[list[str], str, ValueFault | None]:
        answered, cells, raw = self._marks.off(cells, raw)
        if answered:
            self.answers[line] = answered
        return cells, raw, BAD_ID if answered == DAMAGED else None

    def _ragged(self, fields: int, width: int | None, raw: str) -> ValueFault:
        if width is None:
            return ValueFault(
                "FEED-FILE-02", f"{counted(fields, 'field')}, but the feed names column {len(self.header or ())}"
            )
        like = "the header has" if self.feed.header else "the first row has"
        found = ragged(fields, width, self.feed.delimiter, like, bool(self.feed.quote))
        return mended(found, raw, self.feed, width + len(self._marks.places))

    # --- Quotes that take rows in -----------------------------------------------------------------

    def _wrongly_quoted(self, endless: bool) -> SourceRow:
        """Return the row with a wrong quote. If the quote swallowed lines that are rows, it ends on its first line.

        Raises Unreadable if the quote swallowed 2 MiB without a row, or if this happens in many rows.
        """
        rest = self._lines.taken[1:]
        line = self.counted.lines - len(rest)
        if any(self._like_a_row(text) for text in rest):
            self._lines.give_back()
            if self._lines.given_back > MOST_READ_AGAIN:
                raise UnreadableFile(self._never_closed(line))
            self._start()
            fault = UNCLOSED
        elif endless:
            raise UnreadableFile(self._never_closed(line))
        else:
            fault = lines_of(BAD_QUOTING, line, line + len(rest))
            fault = mended(fault, "".join(self._lines.taken), self.feed, (self._width or 0) + len(self._marks.places))
        cells = next(csv.reader(self._lines.taken, **dialect(self.feed)), [])[len(self._marks.places) : -1]
        _, lines, raw = self._lines.take()
        if self._marks:
            answered, raw = self._marks.off_text(raw)
            if answered:
                self.answers[line] = answered
        return SourceRow(cells or None, line, lines, raw, fault)

    def _swallows(self, fields: int) -> bool:
        """True if a quote may have swallowed a row: a row of several lines has one that looks like a row.

        In a file that answers rejects, only a line that begins with an id counts, since a person has looked at its
        rows.
        """
        rest = self._lines.taken[1:]
        if self._marks:
            return any(map(self._begins_with_id, rest))
        if not fields or (self._width or 0) < TELLING:
            return False
        return any(self._like_a_row(text) and not self._is_prose(text) for text in rest)

    def _like_a_row(self, text: str) -> bool:
        """True if a line is a row by itself: it has as many fields as a row, or begins with the id of a reject."""
        if self._begins_with_id(text):
            return True
        return len(next(csv.reader([text], **dialect(self.feed)), [])) == self.width + len(self._marks.places)

    def _begins_with_id(self, text: str) -> bool:
        return bool(self._marks and self._marks.off_text(text)[0])

    def _is_prose(self, text: str) -> bool:
        """True if a line of a quoted text has as many commas as a row, and blanks after them as in sentences."""
        sign = self.feed.delimiter
        spaced = f"{sign} "
        if sign.isspace() or self.feed.skip_spaces or spaced in self.header_text:
            return False
        return text.count(spaced) * 2 > text.count(sign)

    def _never_closed(self, line: int) -> str:
        return (
            f"{self.name}: a quote ({self.feed.quote}) opened in the row of line {line} is never closed, "
            "so it is unknown where the next rows begin; correct that row"
        )


def something_in(cells: list[str]) -> bool:
    r"""True if a row has content: spreadsheets write empty rows as delimiters, old systems end a file with \x1a."""
    return any(map(_without_blanks, cells))


_without_blanks = methodcaller("strip", " \t\r\n\v\f\x1a\u00a0")
