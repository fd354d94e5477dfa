"""The reader of a received file, by its form and content."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from pipelines.feeds.files.catalog import Feed, form_by_name
from pipelines.feeds.reading.chunks import LONGEST_ROW, Chunk, RowReader
from pipelines.feeds.reading.cut_rows import CutRows
from pipelines.feeds.reading.packed import contents
from pipelines.feeds.reading.parquet import NO_TEXT, ParquetReader
from pipelines.feeds.reading.reject_marks import marked_form
from pipelines.feeds.reading.second_tables import SecondTables
from pipelines.feeds.reading.tables import TableFileReader, TableReader, TableRow
from pipelines.feeds.reading.text_files import text_reader
from pipelines.feeds.reading.workbook import WorkbookReader
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile, reading_file


class QueriedReader(TableFileReader):
    """A reader of the rows that a query returned."""

    def open(self) -> None:
        with reading_file(self.name):
            self._file = self.held.enter_context(self._path.open(encoding="utf-8", newline="\n"))
        self.take_header([str(name) for name in self._read(self._file.readline(LONGEST_ROW))])

    def rows(self) -> Iterator[TableRow]:
        while line := self._file.readline(2 * LONGEST_ROW):
            self.counted.lines += 1
            found = self._read(line)
            cells = [self._text(value) for value in found]
            if any(map(str.strip, cells)):
                yield TableRow(self.counted.lines, cells, NO_TEXT if {} in found else None)
            else:
                self.counted.blank += 1

    def _read(self, line: str) -> list[Any]:
        try:
            found = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not isinstance(self.header, list) or len(found) < len(self.header):
            raise UnreadableFile(f"{self.name}: not rows of a query, or damaged ones; run the import again")
        return found

    def _text(self, value: object) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        return self._numbers.of(value) if isinstance(value, Decimal) else ""


TABLES: dict[str, Callable[[Path, str, FeedFile], TableReader]] = {
    "xlsx": WorkbookReader,
    "parquet": ParquetReader,
    "sql": QueriedReader,
}
"""The readers of files that are not text, by form."""


def form_of(path: Path, file_name: str, feed: Feed) -> str:
    """Return the form of a file. Corrected rejects are recognized whatever their name. Raises Unreadable."""
    if form := marked_form(path) or feed.file.format:
        return form
    if (form := form_by_name(file_name)) in TABLES:
        return form
    return form_by_name(contents(path, file_name, feed.file.files).files[0].file_name)


def chunks_apart(reader: RowReader, file: FeedFile) -> Iterator[Chunk]:
    """Return the chunks of a reader; rows of second tables, and rows that may be cut, are rejected."""
    return CutRows(reader, file).among(SecondTables(reader, file).over())


def reader_of(path: Path, file_name: str, feed: Feed) -> RowReader:
    """Return the reader of a file, to be used in `with`. Raises Unreadable."""
    form = form_of(path, file_name, feed)
    if table := TABLES.get(form):
        return table(path, file_name, feed.file)
    return text_reader(path, file_name, feed, form)
