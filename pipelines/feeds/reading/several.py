"""The files of a zip archive, read one after another as one: lines run on from file to file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from pipelines.feeds.reading.chunks import Chunk, Places, RowReader
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import Unreadable


class Several(RowReader):
    """Reads several files with one header. make: the reader of one of them."""

    def __init__(
        self, files: Sequence[Content], name: str, feed: FeedFile, make: Callable[[Content], RowReader]
    ) -> None:
        super().__init__(name, feed)
        self._files, self._make = files, make
        self._ends: list[tuple[str, int]] = []
        self._at = files[0].file_name

    def __enter__(self) -> Self:
        self._reader = self._opened(self._files[0])
        self.feed, self.header = self._reader.feed, self._reader.header
        self.header_text = self._reader.header_text
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__()

    @property
    def width(self) -> int:
        return self._reader.width

    @property
    def places(self) -> Places:
        return Places(tuple(self._ends))

    def place(self, line: int) -> str:
        """Name a line; one behind the ends that are known is in the file that is being read."""
        return Places((*self._ends, (self._at, sys.maxsize))).of(line)

    @property
    def is_answer(self) -> bool:
        return self._reader.is_answer

    @property
    def has_mark(self) -> bool:
        return self._reader.has_mark

    def first_lines(self) -> Sequence[str]:
        return self._reader.first_lines()

    def chunks(self) -> Iterator[Chunk]:
        is_answer = self.is_answer
        for file in self._files:
            if self._ends:
                self._reader.__exit__()
                self._reader, self._at = self._opened(file), file.file_name
                if (self._reader.header, self._reader.feed, self.is_answer) != (self.header, self.feed, is_answer):
                    raise Unreadable(
                        f"{file.name} has other columns than {self._files[0].file_name}; "
                        "put files with different columns in one by one"
                    )
            yield from self._shifted(self._reader)
            self._add(file.file_name, self._reader)

    def _opened(self, file: Content) -> RowReader:
        return self._make(file).__enter__()

    def _shifted(self, reader: RowReader) -> Iterator[Chunk]:
        """The chunks of a file, with lines of the whole. Headers that come again are known before their chunk is."""
        before, published = self.counted.lines, 0
        for chunk in reader.chunks():
            chunk.line = [line + before for line in chunk.line]
            for row in chunk.bad:
                row.line += before
            self.answers |= {line + before: ids for line, ids in reader.answers.items()}
            reader.answers.clear()
            repeats = reader.counted.repeats
            self.counted.repeats += [line + before for line in repeats[published:]]
            published = len(repeats)
            yield chunk

    def _add(self, name: str, reader: RowReader) -> None:
        """Add a file's counts to those of the files before it."""
        counted, own = self.counted, reader.counted
        counted.lines += own.lines
        counted.header += own.header
        counted.blank += own.blank
        counted.of_repeats += own.of_repeats
        self._ends.append((name, counted.lines))
