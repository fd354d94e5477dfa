"""The reader of a received file, by its form and content."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.feeds.files.catalog import Feed, form_by_name
from pipelines.feeds.reading.chunks import Chunk, RowReader
from pipelines.feeds.reading.cut_rows import CutRows
from pipelines.feeds.reading.packed import contents
from pipelines.feeds.reading.parquet import ParquetReader
from pipelines.feeds.reading.queried import QueriedReader
from pipelines.feeds.reading.reject_marks import marked_form
from pipelines.feeds.reading.second_tables import SecondTables
from pipelines.feeds.reading.tables import TableReader
from pipelines.feeds.reading.text_files import text_reader
from pipelines.feeds.reading.workbook import WorkbookReader
from pipelines.feeds.terms.schema import FeedFile

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
