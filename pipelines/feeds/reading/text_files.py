"""The reader of a received file of text: of one file, of the files of an archive, or of two that are joined."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pipelines.feeds.files.catalog import Feed, form_by_name
from pipelines.feeds.reading.chunks import Notice, RowReader
from pipelines.feeds.reading.csv_file import CsvReader
from pipelines.feeds.reading.fixed import FixedReader
from pipelines.feeds.reading.joined import JoinedReader
from pipelines.feeds.reading.marks import as_saved, marked_form
from pipelines.feeds.reading.objects import ArrayReader, ObjectLinesReader
from pipelines.feeds.reading.packed import UNTAKEN, Content, contents, is_taken
from pipelines.feeds.reading.several import Several
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import Unreadable

BY_FORM: dict[str, Callable[[Content, FeedFile], RowReader]] = {
    "csv": CsvReader,
    "ndjson": ObjectLinesReader,
    "json": ArrayReader,
    "fixed": FixedReader,
}


def text_reader(path: Path, file_name: str, feed: Feed, form: str) -> RowReader:
    """The reader of a file of text, to be entered. Raises Unreadable."""
    if feed.file.join and not marked_form(path):
        return _joined(path, file_name, feed)
    found = contents(path, file_name, feed.file.files)
    reader = _one_after_another(found.files, file_name, feed.file, form)
    reader.noticed.extend(map(_untaken, found.untaken))
    return reader


def _one_after_another(files: Sequence[Content], file_name: str, feed: FeedFile, form: str) -> RowReader:
    make = partial(_reader_of_one, feed=feed, form=form)
    return make(files[0]) if len(files) == 1 else Several(files, file_name, feed, make)


def _reader_of_one(content: Content, feed: FeedFile, form: str) -> RowReader:
    if feed.fields and form != "fixed":  # corrected rejects name the fields in a header
        feed = feed.model_copy(update={"header": 1})
    if form == "csv":
        feed = as_saved(content, feed)
    return BY_FORM[form](content, feed)


def _untaken(name: str) -> Notice:
    return Notice(None, UNTAKEN, f"{name} is not taken: the feed takes no such name")


def _joined(path: Path, file_name: str, feed: Feed) -> RowReader:
    """The reader of a zip archive with the two files that a feed joins. Raises Unreadable."""
    [join] = feed.file.join.values()
    every = contents(path, file_name, ("*",)).files
    both = [[file for file in every if is_taken(file.file_name, names)] for names in (feed.file.files, join.files)]
    for files, patterns in zip(both, (feed.file.files, join.files), strict=True):
        if not files:
            raise Unreadable(
                f"{file_name}: no {' or '.join(patterns)} is here, which the feed joins; put both files into one zip"
                " archive"
            )
    read_by = (feed.file, feed.file.model_copy(update=join.written))
    first, second = (
        _one_after_another(files, file_name, file, feed.file.format or form_by_name(files[0].file_name))
        for files, file in zip(both, read_by, strict=True)
    )
    reader = JoinedReader(first, second, (both[0][0].file_name, both[1][0].file_name), file_name, feed.file)
    reader.noticed.extend(_untaken(file.file_name) for file in every if file not in both[0] and file not in both[1])
    return reader
