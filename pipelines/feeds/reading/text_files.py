"""The reader of a received text file: of one file, of the files of an archive, or of two joined files."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pipelines.feeds.files.catalog import Feed, form_by_name
from pipelines.feeds.reading.chunks import Chunk, LineNames, Notice, RowReader
from pipelines.feeds.reading.csv_file import CsvReader
from pipelines.feeds.reading.fixed import FixedReader
from pipelines.feeds.reading.joined import JoinedReader
from pipelines.feeds.reading.objects import ArrayReader, ObjectLinesReader
from pipelines.feeds.reading.packed import UNTAKEN, Content, contents, is_taken
from pipelines.feeds.reading.reject_marks import as_saved, marked_form
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile

BY_FORM: dict[str, Callable[[Content, FeedFile], RowReader]] = {
    "csv": CsvReader,
    "ndjson": ObjectLinesReader,
    "json": ArrayReader,
    "fixed": FixedReader,
}


def text_reader(path: Path, file_name: str, feed: Feed, form: str) -> RowReader:
    """Return the reader of a text file, to be used in `with`. Raises Unreadable."""
    if feed.file.join and not marked_form(path):
        return _joined(path, file_name, feed)
    found = contents(path, file_name, feed.file.files)
    reader = _one_after_another(found.files, file_name, feed.file, form)
    reader.noticed.extend(map(_untaken, found.untaken))
    return reader


def _one_after_another(files: Sequence[Content], file_name: str, feed: FeedFile, form: str) -> RowReader:
    make = partial(_reader_of_one, feed=feed, form=form)
    return make(files[0]) if len(files) == 1 else SeveralFiles(files, file_name, feed, make)


def _reader_of_one(content: Content, feed: FeedFile, form: str) -> RowReader:
    if feed.fields and form != "fixed":  # corrected rejects name the fields in a header
        feed = feed.model_copy(update={"header": 1})
    if form == "csv":
        feed = as_saved(content, feed)
    return BY_FORM[form](content, feed)


def _untaken(name: str) -> Notice:
    return Notice(None, UNTAKEN, f"{name} is not taken: the feed takes no such name")


def _joined(path: Path, file_name: str, feed: Feed) -> RowReader:
    """Return the reader of a zip archive with the two files that a feed joins. Raises Unreadable."""
    [(prefix, join)] = feed.file.join.items()
    every = contents(path, file_name, ("*",)).files
    both = [[file for file in every if is_taken(file.file_name, names)] for names in (feed.file.files, join.files)]
    for files, patterns in zip(both, (feed.file.files, join.files), strict=True):
        if not files:
            raise UnreadableFile(
                f"{file_name}: there is no {' or '.join(patterns)} in it, which the feed joins; put both files into one"
                " zip archive"
            )
    read_by = (feed.file, feed.file.model_copy(update=join.written))
    first, second = (
        _one_after_another(files, file_name, file, feed.file.format or form_by_name(files[0].file_name))
        for files, file in zip(both, read_by, strict=True)
    )
    names = both[0][0].file_name, both[1][0].file_name
    reader = JoinedReader(first, second, names, file_name, feed.file, prefix)
    reader.noticed.extend(_untaken(file.file_name) for file in every if file not in both[0] and file not in both[1])
    return reader


class SeveralFiles(RowReader):
    """A reader of a zip archive's files, one after another as one file with one header and continuous line numbers.

    make: returns the reader of one file.
    """

    def __init__(
        self, files: Sequence[Content], name: str, feed: FeedFile, make: Callable[[Content], RowReader]
    ) -> None:
        super().__init__(name, feed)
        self._files, self._make = files, make
        self._ends: list[tuple[str, int]] = []
        self._at = files[0].file_name

    def open(self) -> None:
        self._reader = self.held.enter_context(self._make(self._files[0]))
        self.feed, self.header = self._reader.feed, self._reader.header
        self.header_text = self._reader.header_text

    @property
    def width(self) -> int:
        return self._reader.width

    @property
    def places(self) -> LineNames:
        return LineNames(tuple(self._ends))

    def place(self, line: int) -> str:
        """Return the name of a line. A line after the known ends is in the file that is being read."""
        return LineNames((*self._ends, (self._at, sys.maxsize))).of(line)

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
                self.held.close()
                self._reader, self._at = self.held.enter_context(self._make(file)), file.file_name
                if (self._reader.header, self._reader.feed, self.is_answer) != (self.header, self.feed, is_answer):
                    raise UnreadableFile(
                        f"{file.name} has other columns than {self._files[0].file_name}; "
                        "put files with different columns in one by one"
                    )
            yield from self._shifted(self._reader)
            self._add(file.file_name, self._reader)

    def _shifted(self, reader: RowReader) -> Iterator[Chunk]:
        """Yield the chunks of a file with line numbers of the whole. Repeated headers are noted before their chunk."""
        before, published = self.counted.lines, 0
        for chunk in reader.chunks():
            chunk.rows = [row._replace(line=row.line + before) for row in chunk.rows] if before else chunk.rows
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
