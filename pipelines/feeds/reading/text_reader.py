"""A file of text, read line by line."""

import codecs
from collections.abc import Sequence
from typing import Self

from pipelines.feeds.reading.chunks import RowReader
from pipelines.feeds.reading.lines import Lines
from pipelines.feeds.reading.opening import first_lines
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.terms.schema import FeedFile


class TextReader(RowReader):
    """Reads the rows of a text."""

    def __init__(self, content: Content, feed: FeedFile) -> None:
        super().__init__(content.name, feed)
        self._content = content

    def begin(self) -> None:
        """Go to the first row."""

    def __enter__(self) -> Self:
        self._lines = Lines(self._content, self.feed, self.counted)
        try:
            self.begin()
        except BaseException:
            self._lines.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    @property
    def has_mark(self) -> bool:
        with self._content.open() as file:
            return file.read(3) == codecs.BOM_UTF8

    def first_lines(self) -> Sequence[str]:
        return first_lines(self._content, self.feed)
