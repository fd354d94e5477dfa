"""The reader of a received file, by its form and by what is in it."""

from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.chunks import Notice, RowReader
from pipelines.feeds.reading.marks import marked_form
from pipelines.feeds.reading.packed import UNTAKEN, contents
from pipelines.feeds.reading.rows import Reader
from pipelines.feeds.reading.several import Several


def form_of(path: Path, file_name: str, feed: Feed) -> str:
    """`csv` or `ndjson`: corrected rejects show it themselves, whatever their name. Raises Unreadable."""
    return marked_form(path) or feed.format_of(contents(path, file_name, feed.patterns).files[0].file_name)


def reader_of(path: Path, file_name: str, feed: Feed) -> RowReader:
    """The reader of a file, to be entered. Raises Unreadable."""
    found, form = contents(path, file_name, feed.patterns), form_of(path, file_name, feed)
    reader: Reader | Several
    if len(found.files) == 1:
        reader = Reader(found.files[0], feed.file, form)
    else:
        reader = Several(found.files, file_name, feed.file, form)
    reader.noticed += [
        Notice(None, UNTAKEN, f"{name} is not taken: the feed takes no such name") for name in found.untaken
    ]
    return reader
