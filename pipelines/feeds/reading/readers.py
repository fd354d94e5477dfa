"""The reader of a received file, by its form and by what is in it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pipelines.feeds.files.catalog import Feed, form_by_name
from pipelines.feeds.reading.chunks import Notice, RowReader
from pipelines.feeds.reading.fixed import FixedReader
from pipelines.feeds.reading.joined import JoinedReader
from pipelines.feeds.reading.marks import marked_form
from pipelines.feeds.reading.objects import ArrayReader
from pipelines.feeds.reading.packed import UNTAKEN, Content, contents, is_taken
from pipelines.feeds.reading.parquet import ParquetReader
from pipelines.feeds.reading.queried import QueriedReader
from pipelines.feeds.reading.rows import Reader
from pipelines.feeds.reading.several import Several
from pipelines.feeds.reading.tables import TableReader
from pipelines.feeds.reading.workbook import WorkbookReader
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import Unreadable

TABLES: dict[str, Callable[[Path, str, FeedFile], TableReader]] = {
    "xlsx": WorkbookReader,
    "parquet": ParquetReader,
    "sql": QueriedReader,
}
"""The readers of what is no text, by form."""


def form_of(path: Path, file_name: str, feed: Feed) -> str:
    """The form of a file: corrected rejects show it themselves, whatever their name. Raises Unreadable."""
    if form := marked_form(path) or feed.file.format:
        return form
    if (form := form_by_name(file_name)) in TABLES:
        return form
    return form_by_name(contents(path, file_name, feed.patterns).files[0].file_name)


def _text_reader(content: Content, feed: FeedFile, form: str) -> RowReader:
    if form == "fixed":
        return FixedReader(content, feed)
    if feed.fields:  # corrected rejects name the fields in a header
        feed = feed.model_copy(update={"header": 1})
    return ArrayReader(content, feed) if form == "json" else Reader(content, feed, form)


def reader_of(path: Path, file_name: str, feed: Feed) -> RowReader:
    """The reader of a file, to be entered. Raises Unreadable."""
    form = form_of(path, file_name, feed)
    if table := TABLES.get(form):
        return table(path, file_name, feed.file)
    if feed.file.join and not marked_form(path):
        return _joined(path, file_name, feed)
    found = contents(path, file_name, feed.patterns)
    make = partial(_text_reader, feed=feed.file, form=form)
    reader = make(found.files[0]) if len(found.files) == 1 else Several(found.files, file_name, make)
    for name in found.untaken:
        reader.noticed.append(Notice(None, UNTAKEN, f"{name} is not taken: the feed takes no such name"))
    return reader


def _joined(path: Path, file_name: str, feed: Feed) -> RowReader:
    """The reader of a zip archive with the two files that a feed joins. Raises Unreadable."""
    [join] = feed.file.join.values()
    every = contents(path, file_name, ("*",)).files
    both = [[file for file in every if is_taken(file.file_name, names)] for names in (feed.patterns, join.files)]
    for files, patterns in zip(both, (feed.patterns, join.files), strict=True):
        if not files:
            raise Unreadable(
                f"{file_name}: no {' or '.join(patterns)} is here, which the feed joins; put both files into one zip"
                " archive"
            )
    second_file = feed.file.model_copy(update=join.written)
    first, second = (_several(both[0], file_name, feed, feed.file), _several(both[1], file_name, feed, second_file))
    reader = JoinedReader(first, second, (both[0][0].file_name, both[1][0].file_name), file_name, feed.file)
    for file in every:
        if file not in both[0] and file not in both[1]:
            said = f"{file.file_name} is not taken: the feed takes no such name"
            reader.noticed.append(Notice(None, UNTAKEN, said))
    return reader


def _several(files: Sequence[Content], file_name: str, feed: Feed, file: FeedFile) -> RowReader:
    form = feed.file.format or form_by_name(files[0].file_name)
    make = partial(_text_reader, feed=file, form=form)
    return make(files[0]) if len(files) == 1 else Several(files, file_name, make)
