"""A text file, read line by line: lines are kept until their row is complete."""

import codecs
import csv
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from io import StringIO

from pipelines.feeds.reading.chunks import LONGEST_ROW, LineCounts, RowReader
from pipelines.feeds.reading.opening import FEW_ZEROS, ZEROS, decoding, first_lines, open_text
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile

LONGEST_LINE = LONGEST_ROW
AHEAD = 1 << 16
BREAKS = ("\n", "\r\n", "\r")
NOT_ROWS = "check that it is the right file"
csv.field_size_limit(LONGEST_LINE)  # for drafts too


class Lines:
    """The lines of an open file. counted: the counts to update. taken: the lines of the row that is being read."""

    def __init__(self, content: Content, feed: FeedFile, counted: LineCounts) -> None:
        self._content, self._feed, self._counted = content, feed, counted
        self._file = open_text(content, feed)
        self.taken: list[str] = []
        self._again: deque[str] = deque()
        self.given_back = 0

    def close(self) -> None:
        self._file.close()

    def begins_with(self, text: str) -> bool:
        """True if a text is on the first line, which is read anew."""
        with suppress(UnreadableFile, UnicodeError), open_text(self._content, self._feed) as file:
            return text in file.readline(LONGEST_LINE)
        return False

    def read(self) -> Iterator[str]:
        """Yield the lines that were given back, then the file's lines, and keep each in `taken`."""
        readline, taken, limit, again = self._file.readline, self.taken, LONGEST_LINE, self._again
        with self._decoding():
            while line := again.popleft() if again else readline(limit):
                if len(line) >= limit:
                    endless = line.endswith("\0" * FEW_ZEROS)
                    said = f"has {ZEROS}" if endless else f"is longer than 2 MiB; {NOT_ROWS}"
                    raise UnreadableFile(f"{self._content.name}: line {self._counted.lines + 1} {said}")
                self._counted.lines += 1
                if self._counted.lines == 1:
                    line = line.removeprefix("\ufeff")
                taken.append(line)
                yield line

    def _decoding(self) -> AbstractContextManager[None]:
        return decoding(self._content.name, self._feed.encoding)

    def skip_breaks(self) -> int:
        """Skip the following lines that are only a line break; return their number.

        A file may consist of them, so they are counted in blocks. Other lines of a block are left for `read`.
        """
        number, again = 0, self._again
        while not again and (block := self._ahead()):
            others = block.lstrip("\r\n")
            breaks = block[: len(block) - len(others)]
            number += breaks.count("\n") + breaks.count("\r") - breaks.count("\r\n")
            again.extend(StringIO(others, newline=""))
        while again and again[0] in BREAKS:
            number += 1
            again.popleft()
        self._counted.lines += number
        return number

    def _ahead(self) -> str:
        """Return the next lines of the file, complete unless the last is too long; empty at its end."""
        with self._decoding():
            block = self._file.read(AHEAD)
            return block if block.endswith("\n") else block + self._file.readline(LONGEST_LINE)

    def take(self) -> tuple[int, int, str]:
        """Return first line, number of lines and text of the lines read since the last call."""
        taken = self.taken
        lines = len(taken)
        raw = taken[0] if lines == 1 else "".join(taken)
        taken.clear()
        return self._counted.lines - lines + 1, lines, raw

    def give_back(self) -> None:
        """Put back all taken lines but the first, to be read as rows of their own."""
        rest = self.taken[1:]
        del self.taken[1:]
        self.given_back += sum(map(len, rest))
        self._again.extendleft(reversed(rest))
        self._counted.lines -= len(rest)


class TextReader(RowReader):
    """A reader of rows of text."""

    def __init__(self, content: Content, feed: FeedFile) -> None:
        super().__init__(content.name, feed)
        self._content = content

    def open(self) -> None:
        self._lines = self.held.enter_context(closing(Lines(self._content, self.feed, self.counted)))

    @property
    def has_mark(self) -> bool:
        with self._content.open() as file:
            return file.read(3) == codecs.BOM_UTF8

    def first_lines(self) -> Sequence[str]:
        return first_lines(self._content, self.feed)
