"""Fixed width: lines whose fields stand at places that the feed declares, read as a table."""

from collections.abc import Iterator

from pipelines.feeds.reading.broken import unreadable
from pipelines.feeds.reading.chunks import LONGEST_ROW
from pipelines.feeds.reading.opening import NAME_THE_ENCODING, open_text
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.reading.tables import TableReader, TableRow
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import Unreadable
from pipelines.home.counted import counted

RULE = "FEED-FILE-02"
TAB = Fault(RULE, "a tab in a line of fixed width: the fields behind it stand at other places; export it with blanks")


class FixedReader(TableReader):
    """Reads a text of fixed width. A place counts characters, the first is 1."""

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
        self.take_header(list(self._own.fields))

    def rows(self) -> Iterator[TableRow]:
        while line := self._next():
            text = line.rstrip("\r\n\x1a")
            if not text.strip():
                self.counted.blank += 1
                continue
            cells = [text[place].strip() for place in self._places]
            yield TableRow(self.counted.lines, cells, self._fault(text))

    def _next(self) -> str:
        try:
            line = self._file.readline(LONGEST_ROW)
        except UnicodeError:
            raise Unreadable(f"{self.name}: not text in {self._own.encoding}; {NAME_THE_ENCODING}") from None
        if len(line) >= LONGEST_ROW:
            raise Unreadable(f"{self.name}: line {self.counted.lines + 1} is longer than 2 MiB; has it line breaks?")
        self.counted.lines += bool(line)
        return line.removeprefix("\ufeff") if self.counted.lines == 1 else line

    def _fault(self, text: str) -> Fault | None:
        if "\t" in text:
            return TAB
        if len(text) < self._needed and not self._own.short_lines:
            return Fault(
                RULE,
                f"the line has {counted(len(text), 'character')}, and its fields end at {self._needed}: it may be cut"
                " off; where blanks at the end are left out, the feed file says short_lines = true",
            )
        return unreadable(text)
