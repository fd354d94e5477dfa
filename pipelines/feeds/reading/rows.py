"""Files as rows: bytes to text to CSV records or JSON objects, with the physical line each begins at.

A row that cannot be told what it is becomes a `BadRow`; a file whose rows cannot be told apart is `Unreadable`.
"""

import codecs
import csv
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Self

from pipelines.feeds.reading.blocks import plain_rows, something_in
from pipelines.feeds.reading.broken import (
    BAD_QUOTING,
    SWALLOWED,
    TORN,
    UNCLOSED,
    BadRow,
    is_torn,
    lines_of,
    other_text,
    ragged,
    unreadable,
)
from pipelines.feeds.reading.chunks import CHUNK, CHUNK_SIZE, LONGEST_ROW, Chunk, Counted, Notice, Places
from pipelines.feeds.reading.dialect import dialect, mended
from pipelines.feeds.reading.marks import REJECT_ID, Columns, as_saved, unmarked_line
from pipelines.feeds.reading.objects import read_object
from pipelines.feeds.reading.opening import FEW_ZEROS, NAME_THE_ENCODING, ZEROS, first_lines, is_single_byte, open_text
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.names import named_columns, position
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed
from pipelines.home.batch import Unreadable

LONGEST_LINE = LONGEST_ROW
MOST_READ_AGAIN = 32 * LONGEST_LINE
csv.field_size_limit(LONGEST_LINE)


class Reader:
    """A CSV or NDJSON file, a `RowReader`. header: the names of a CSV's columns, None for NDJSON.

    feed: how it is written, which of corrected rejects may be another than their feed's.
    header_text: the header's own lines. answers: by line, the ids of the rejects that a row says it answers; the marks
    that say so are in none of the above.
    """

    def __init__(self, content: Content, feed: FeedFile, form: str) -> None:
        self.name = content.name
        self.feed = feed = as_saved(content, feed) if form == "csv" else feed
        self._takes_quotes = feed.quotes == "as they are"
        self._quote = "" if feed.escape or self._takes_quotes else feed.quote
        self._is_single_byte = is_single_byte(feed.encoding)
        self.counted = Counted()
        self._content = content
        self._taken: list[str] = []
        self._again: deque[str] = deque()
        self._read_again = self._one_by_one = 0
        self._form = form
        self.header: list[str] | None = None
        self._width: int | None = None
        self.header_text = ""
        self._marks = Columns((), feed)
        self._headers: tuple[list[str], ...] = ()
        self.answers: dict[int, str] = {}
        self.noticed: list[Notice] = []
        self.places = Places()

    def __enter__(self) -> Self:
        self._file = open_text(self._content, self.feed)
        self._start()
        try:
            if self._form == "csv":
                self._begin()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def width(self) -> int:
        """The number of fields of a row; without a header, as far as it is known yet."""
        return self._width or len(self.header or ())

    @property
    def is_answer(self) -> bool:
        """True if the rows of a CSV name rejects that they answer: somebody has looked at them."""
        return bool(self._marks)

    @property
    def has_mark(self) -> bool:
        """True if the file begins with the byte order mark of UTF-8."""
        with self._content.open() as file:
            return file.read(3) == codecs.BOM_UTF8

    def first_lines(self) -> Sequence[str]:
        return first_lines(self._content, self.feed)

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some thousand at a time."""
        chunk = Chunk()
        rows = self._csv_rows(chunk) if self._form == "csv" else self._objects(chunk)
        for _ in rows:
            if len(chunk.rows) + len(chunk.bad) >= CHUNK or chunk.size >= CHUNK_SIZE:
                yield chunk.handed_over()
        yield chunk

    def _start(self) -> None:
        """Readers that begin with the lines to be read again, if there are some."""
        self._lines = self._physical_lines()
        self._csv = csv.reader(self._lines, strict=True, **dialect(self.feed))

    def _physical_lines(self) -> Iterator[str]:
        """The file's lines, each also put aside in `_taken` until its row is whole."""
        readline, taken, limit = self._file.readline, self._taken, LONGEST_LINE
        while self._again:
            self.counted.lines += 1
            taken.append(self._again.popleft())
            yield taken[-1]
        try:
            while line := readline(limit):
                if len(line) >= limit:
                    raise Unreadable(f"{self.name}: line {self.counted.lines + 1} {_endless(line)}")
                self.counted.lines += 1
                if self.counted.lines == 1:
                    line = line.removeprefix("\ufeff")
                taken.append(line)
                yield line
        except UnicodeError:
            raise Unreadable(f"{self.name}: not text in {self.feed.encoding}; {NAME_THE_ENCODING}") from None

    def _take(self) -> tuple[int, int, str]:
        """First line, number of lines and text of what was read since the last time."""
        taken = self._taken
        lines = len(taken)
        raw = taken[0] if lines == 1 else "".join(taken)
        taken.clear()
        return self.counted.lines - lines + 1, lines, raw

    # --- CSV --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """To the first row. Corrected rejects have their header on the first line, whatever their feed says."""
        marked = self.feed.header != 1 and self._first_line_is_marked()
        if self.feed.header or marked:
            self.header = self._read_header(0 if marked else self.feed.header - 1)
            self._width = len(self.header)
        if not self.feed.header:
            self.header = self._positions()

    def _first_line_is_marked(self) -> bool:
        try:
            return REJECT_ID in self._file.readline(LONGEST_LINE)
        except (Unreadable, UnicodeError):
            return False
        finally:
            self._file.seek(0)

    def _positions(self) -> list[str]:
        """Return `#1`, `#2`, ... as the header of a file without one, up to the highest position in the feed."""
        most = max((position(name) or 0 for name in named_columns(self.feed)), default=0)
        return [f"#{place}" for place in range(1, most + 1)]

    def _read_header(self, skip: int) -> list[str]:
        """The names of the columns, on the first line with something on it after those to skip."""
        for _ in range(skip):
            next(self._lines, None)
        before = self._take()[1]
        try:
            for cells in self._csv:
                _, lines, raw = self._take()
                if not something_in(cells):
                    self.counted.blank += lines
                    continue
                self.counted.header = before + lines
                if fault := unreadable(raw):
                    raise Unreadable(f"{self.name}: the header has {fault.message}")
                self._headers = cells, [f"\ufeff{cells[0]}", *cells[1:]]
                return self._own_header([composed(cell.strip()) for cell in cells], raw)
        except csv.Error:
            raise Unreadable(
                f"{self.name}: the {'first line' if not skip else 'header'} is no CSV header; {_NOT_ROWS}"
            ) from None
        if before:
            raise Unreadable(f"{self.name}: nothing on line {skip + 1} or after it, where the header should be")
        raise Unreadable(f"{self.name}: the file is empty; export it again")

    def _own_header(self, names: list[str], raw: str) -> list[str]:
        self._marks, self.header_text = Columns(names, self.feed), raw
        if self._marks:
            _, names, self.header_text = self._marks.off(names, raw)
        return names

    def _own(self, line: int, cells: list[str], raw: str) -> tuple[list[str], str]:
        answered, cells, raw = self._marks.off(cells, raw)
        self._answering(line, answered)
        return cells, raw

    def _answering(self, line: int, reject_ids: str | None) -> None:
        if reject_ids:
            self.answers[line] = reject_ids

    def _csv_rows(self, chunk: Chunk) -> Iterator[None]:
        """The rows, a block of lines at a time; one by one in a block in which any row asks for a closer look."""
        takes_blocks = not (self._marks or self._is_single_byte or self._width is None)
        while True:
            if takes_blocks and self.counted.lines >= self._one_by_one:
                block = self._block(CHUNK - len(chunk.rows) - len(chunk.bad))
                if not block:
                    return
                if self._add_block(block, chunk):
                    yield
                    continue
                self._one_by_one = self.counted.lines
                self._again.extendleft(reversed(block))
                self.counted.lines -= len(block)
                self._start()
            try:
                yield from self._good_rows(chunk)
            except csv.Error as error:
                chunk.bad.append(self._wrongly_quoted("field larger" in str(error)))
                yield
            else:
                if not takes_blocks:
                    return

    def _block(self, rows: int) -> list[str]:
        """Return the next lines: as many as the rows that a chunk has room for, or fewer long ones; none at the end."""
        size = 0
        for line in self._lines:
            size += len(line)
            if len(self._taken) >= rows or size >= CHUNK_SIZE:
                break
        block = [*self._taken]
        self._taken.clear()
        return block

    def _add_block(self, block: list[str], chunk: Chunk) -> bool:
        """Add lines that are a row each. False, and nothing is done, if there is anything to say about one of them."""
        rows = plain_rows(block, self.feed, self._width, self._headers, self._quote)
        if rows is not None:
            chunk.add_lines(rows, self.counted.lines - len(block) + 1, block)
        return rows is not None

    def _wrongly_quoted(self, endless: bool) -> BadRow:
        """The row that a quote breaks. Where it took in lines that are rows, it ends on its first line.

        Raises Unreadable where it took in 2 MiB without a row, or this happens in row after row.
        """
        rest = self._taken[1:]
        line = self.counted.lines - len(rest)
        if any(self._like_a_row(text) for text in rest):
            self._give_back(rest, line)
            fault = UNCLOSED
        elif endless:
            raise Unreadable(self._never_closed(line))
        else:
            fault = lines_of(BAD_QUOTING, line, line + len(rest))
            fault = mended(fault, "".join(self._taken), self.feed, (self._width or 0) + len(self._marks.places))
        cells = next(csv.reader(self._taken, **dialect(self.feed)), [])[len(self._marks.places) : -1]
        _, lines, raw = self._take()
        if self._marks:
            answered, raw = self._marks.off_text(raw)
            self._answering(line, answered)
        return BadRow(line, lines, raw, fault, cells or None)

    def _like_a_row(self, text: str) -> bool:
        """True if a line is a row by itself: it has as many fields as a row, or begins with the id of a reject."""
        if self._begins_with_id(text):
            return True
        width = (self._width or len(self.header or ())) + len(self._marks.places)
        return len(next(csv.reader([text], **dialect(self.feed)), [])) == width

    def _begins_with_id(self, text: str) -> bool:
        return bool(self._marks and self._marks.off_text(text)[0])

    def _give_back(self, rest: list[str], line: int) -> None:
        """Lines that were read with the one before them, to be read by themselves."""
        self._again.extendleft(reversed(rest))
        self._read_again += sum(map(len, rest))
        if self._read_again > MOST_READ_AGAIN:
            raise Unreadable(self._never_closed(line))
        del self._taken[1:]
        self.counted.lines -= len(rest)
        self._start()

    def _never_closed(self, line: int) -> str:
        return (
            f"{self.name}: a quote ({self.feed.quote}) opened in the row of line {line} is never closed, "
            "so that the rows after it cannot be told apart; correct that row"
        )

    def _good_rows(self, chunk: Chunk) -> Iterator[None]:
        """Rows up to the next one that is wrongly quoted, or to the end of a block."""
        width, least = self._width, len(self.header or ())
        for found in self._csv:
            swallowed = len(self._taken) > 1 and self._swallows(len(found))
            if swallowed and len(found) != width:
                raise csv.Error
            line, lines, raw = self._take()
            if not something_in(found):
                self.counted.blank += lines
                continue
            if found in self._headers:
                self.counted.repeats.append(line)
                self.counted.of_repeats += lines
                continue
            cells, raw = self._own(line, found, raw) if self._marks else (found, raw)
            if width is None and len(cells) >= least:
                self._width = width = len(cells)
            fits = len(cells) == width
            fault = self._unreadable(raw) if fits else self._ragged(len(cells), width, raw)
            if fault is None and swallowed and not self._takes_quotes:
                fault = SWALLOWED
            if fault is None and self._quote and self._quote in raw and is_torn(cells, raw, self._quote):
                fault = TORN
            if fault:
                said = lines_of(fault, line, line + lines - 1)
                doubtful = fault in (SWALLOWED, TORN)
                chunk.bad.append(BadRow(line, lines, raw, said, cells, doubtful, not (fits or swallowed)))
            else:
                chunk.add(cells, line, lines, raw)
            yield
            if self._one_by_one <= self.counted.lines and self._one_by_one:
                return

    def _swallows(self, fields: int) -> bool:
        """True if a row of several lines has one among them that is like a row: a quote may have taken it in.

        Of a file that answers rejects somebody has looked at the rows: only what begins with an id is like one.
        """
        if self._marks:
            return any(map(self._begins_with_id, self._taken[1:]))
        if not fields or (self._width or 0) < _TELLING:
            return False
        return any(self._like_a_row(text) and not self._is_prose(text) for text in self._taken[1:])

    def _is_prose(self, text: str) -> bool:
        """True if a line of a quoted text has as many commas as a row, and blanks behind them as in sentences."""
        sign = self.feed.delimiter
        spaced = f"{sign} "
        if sign.isspace() or self.feed.skip_spaces or spaced in self.header_text:
            return False
        return text.count(spaced) * 2 > text.count(sign)

    def _unreadable(self, raw: str) -> Fault | None:
        return unreadable(raw) or (other_text(raw, self.feed.encoding) if self._is_single_byte else None)

    def _ragged(self, fields: int, width: int | None, raw: str) -> Fault:
        if width is None:
            return Fault("FEED-FILE-02", f"{fields} fields where the feed names column {len(self.header or ())}")
        like = "the header has" if self.feed.header else "the first row has"
        found = ragged(fields, width, self.feed.delimiter, like, bool(self.feed.quote))
        return mended(found, raw, self.feed, width + len(self._marks.places))

    # --- NDJSON -----------------------------------------------------------------------------------

    def _objects(self, chunk: Chunk) -> Iterator[None]:
        seen = False
        for text in self._lines:
            line, lines, raw = self._take()
            if not text.strip():
                self.counted.blank += lines
                continue
            if not seen and text.strip() in ("{", "["):
                raise Unreadable(
                    f"{self.name}: one JSON document over several lines; NDJSON has one object on each line"
                )
            seen = True
            answered, raw = unmarked_line(raw)
            self._answering(line, answered)
            found, fault = read_object(raw)
            if fault:
                chunk.bad.append(BadRow(line, lines, raw, fault))
            else:
                chunk.add(found, line, lines, raw)
            yield
        if not seen:
            raise Unreadable(f"{self.name}: the file is empty; export it again")


def _endless(line: str) -> str:
    """Return the fault of a line without an end: zero bytes, or more than 2 MiB."""
    return f"has {ZEROS}" if line.endswith("\0" * FEW_ZEROS) else f"is longer than 2 MiB; {_NOT_ROWS}"


_NOT_ROWS = "check that it is the export it is named for"
_TELLING = 4
"""Fields that tell a row from a text with commas."""
