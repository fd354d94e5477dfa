"""Fixed width: lines with fields at the places that the feed declares, read as a table."""

from collections import Counter
from collections.abc import Iterable, Iterator
from io import StringIO
from operator import itemgetter

from pipelines.feeds.reading.chunks import LONGEST_ROW, unreadable
from pipelines.feeds.reading.opening import decoding, first_lines, open_text
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.reading.tables import TableReader, TableRow
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted

RULE = "FEED-FILE-02"
TAB = ValueFault(RULE, "the line has a tab, which moves the fields after it; export the file with spaces instead")
BY_BYTES = ValueFault(
    RULE,
    "the line is as long as the others in bytes, but not in characters, so its fields may have moved; export the file"
    " with lines of the same number of characters, or in an encoding with one byte for each character",
)
BREAKS = "if it is one row, name the text after the last field as a field too, and set short_lines = true"
SEVERAL = ValueFault(RULE, f"the line is as long as several others, so line breaks may be missing in it; {BREAKS}")


class FixedReader(TableReader):
    """A reader of text of fixed width. A place counts characters from 1."""

    def __init__(self, content: Content, feed: FeedFile) -> None:
        super().__init__(content.name, feed)
        self._content = content
        self._places = [slice(first - 1, last) for first, last in feed.fields.values()]
        self._needed = max(last for _, last in feed.fields.values())

    def open(self) -> None:
        self._file = self.held.enter_context(open_text(self._content, self._own))
        for _ in range(self._own.header):
            self._next()
        self.counted.header = self.counted.lines
        self._usual = self._usual_length()
        self.take_header(list(self._own.fields))

    def rows(self) -> Iterator[TableRow]:
        while line := self._next():
            text = _row_of(line)
            if not text.strip():
                self.counted.blank += 1
                continue
            cells = [text[place].strip() for place in self._places]
            yield TableRow(self.counted.lines, cells, self._fault(text))

    def _next(self) -> str:
        with decoding(self.name, self._own.encoding):
            line = self._file.readline(LONGEST_ROW)
        if len(line) >= LONGEST_ROW:
            raise UnreadableFile(
                f"{self.name}: line {self.counted.lines + 1} is longer than 2 MiB; check that the file has line breaks"
            )
        self.counted.lines += bool(line)
        return line.removeprefix("\ufeff") if self.counted.lines == 1 else line

    def _fault(self, text: str) -> ValueFault | None:
        if "\t" in text:
            return TAB
        if len(text) < self._needed and not self._own.short_lines:
            return ValueFault(
                RULE,
                f"the line has {counted(len(text), 'character')}, but its fields end at {self._needed}, so it may be"
                " cut off; if the export leaves out blanks at the end, set short_lines = true in the feed file",
            )
        return self._fault_of_length(text) or unreadable(text)

    def _fault_of_length(self, text: str) -> ValueFault | None:
        """Return the fault of a line of unusual length, if this shows that its fields are elsewhere; else None."""
        usual = self._usual
        if usual < self._needed or len(text) == usual:
            return None
        size = self._size(text)
        if size == usual:
            return BY_BYTES
        return SEVERAL if len(text) > usual and 0 in (len(text) % usual, size % usual) else None

    def _usual_length(self) -> int:
        """Return the length of most of the first rows; 0 if there is none.

        The length is in bytes if more rows agree in that. Raises Unreadable for a single line that may hold several
        rows.
        """
        lines = StringIO("".join(first_lines(self._content, self._own)), newline="")
        texts = [text for line in list(lines)[self._own.header :] if (text := _row_of(line)).strip()]
        if len(texts) == 1 and len(texts[0]) >= 2 * self._needed:
            raise UnreadableFile(
                f"{self.name}: the file is one line, as long as several rows, so line breaks may be missing; {BREAKS}"
            )
        length, number = max(_most(map(len, texts)), _most(map(self._size, texts)), key=itemgetter(1))
        return length if 2 * number > len(texts) else 0

    def _size(self, text: str) -> int:
        return len(text) if text.isascii() else len(text.encode(self._own.encoding, "replace"))


def _row_of(line: str) -> str:
    return line.rstrip("\r\n\x1a")


def _most(lengths: Iterable[int]) -> tuple[int, int]:
    """Return the most frequent of these lengths, and how often it occurs."""
    return next(iter(Counter(lengths).most_common(1)), (0, 0))
