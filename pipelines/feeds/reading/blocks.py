"""Lines of a CSV that are a row each, read together: what few rows have is looked for in all of them at once."""

import csv
from collections.abc import Sequence
from operator import methodcaller

from pipelines.feeds.reading.broken import is_torn, unreadable
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.terms.schema import FeedFile


def plain_rows(
    lines: Sequence[str], feed: FeedFile, width: int | None, headers: Sequence[list[str]], quote: str
) -> list[list[str]] | None:
    """Return the row of each line; None if one of them asks for a closer look.

    width: the fields of a row. headers: what repeats the header, and is no record. quote: the sign by which a row may
    be seen to be torn, empty for none.
    """
    text, heads = "".join(lines), {names[0] for names in headers if names}
    if unreadable(text):
        return None
    try:
        rows = list(csv.reader(lines, strict=True, **dialect(feed)))
    except csv.Error:
        return None
    if len(rows) != len(lines) or {*map(len, rows)} != {width}:
        return None
    if any(cells[0] in heads or not something_in(cells) for cells in rows):
        return None
    if quote and quote in text and any(is_torn(*row, quote) for row in zip(rows, lines, strict=True)):
        return None
    return rows


def something_in(cells: list[str]) -> bool:
    """True if a row has content: spreadsheets write empty rows as delimiters, old systems end a file by \\x1a."""
    return any(map(_without_blanks, cells))


_without_blanks = methodcaller("strip", " \t\r\n\v\f\x1a\u00a0")
