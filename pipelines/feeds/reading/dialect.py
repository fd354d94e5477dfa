"""The row format of a feed, as Python's `csv` takes it, and other formats that would mend a row or a header.

Messages repeat no text of a line, since a supposed header may be a row of data.
"""

import csv
import json
from collections.abc import Collection, Sequence
from typing import Any

from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import DELIMITERS, composed_text

WAYS: tuple[dict[str, Any], ...] = (
    {"skip_spaces": True},
    {"quote": "'"},
    {"escape": "\\"},
    {"quote": "'", "skip_spaces": True},
)
"""Other formats of rows that a row may show, each with its keys of the feed file."""
QUOTES = ("'", '"')


def dialect(feed: FeedFile) -> dict[str, Any]:
    """Return the arguments that reader and writer share."""
    return {
        "delimiter": feed.delimiter,
        "quotechar": feed.quote or None,
        "quoting": csv.QUOTE_MINIMAL if feed.quote else csv.QUOTE_NONE,
        "escapechar": feed.escape or None,
        "doublequote": True,
        "skipinitialspace": feed.skip_spaces,
    }


def mended(fault: ValueFault, raw: str, feed: FeedFile, width: int) -> ValueFault:
    """Return the fault of a row. If another format makes the row whole, name its keys of the feed file."""
    for changes in WAYS:
        other = feed.model_copy(update=changes)
        if other != feed and can_be_read(other) and _has(raw, changes) and _width(raw, other) == width:
            said = " and ".join(f"{key} = {json.dumps(value)}" for key, value in changes.items())
            return ValueFault(fault.rule, f"{fault.message}; the row is whole with {said} in the feed file")
    return fault


def can_be_read(feed: FeedFile) -> bool:
    """True if delimiter, quote and escape differ, and skipped spaces are not the delimiter."""
    signs = [sign for sign in (feed.delimiter, feed.quote, feed.escape) if sign]
    return len(set(signs)) == len(signs) and not (feed.skip_spaces and feed.delimiter == " ")


def _has(raw: str, changes: dict[str, Any]) -> bool:
    """True if a row contains the quote and the escape of a format."""
    return changes.get("quote", "") in raw and changes.get("escape", "") in raw


def _width(raw: str, feed: FeedFile) -> int:
    """Return the number of fields of one row, 0 if the text is not exactly one row."""
    try:
        rows = list(csv.reader(raw.splitlines(keepends=True), strict=True, **dialect(feed)))
    except csv.Error:
        return 0
    return len(rows[0]) if len(rows) == 1 else 0


# -- a header that lacks names


def mending_key(lines: Sequence[str], feed: FeedFile, names: Collection[str]) -> str | None:
    """Return the keys to set, as TOML; None if the lines have all the names in no other format."""
    wanted = {name.casefold() for name in names}
    for changes in _ways(feed):
        other = feed.model_copy(update=changes)
        if not can_be_read(other):
            continue
        how = dialect(other)
        for number, line in enumerate(lines, 1):
            if wanted <= _cells(line, how):
                said = {**changes, **({"header": number} if number != feed.header else {})}
                if not said:
                    return None  # only the spelling of the names differs
                return " and ".join(f"{key} = {json.dumps(value)}" for key, value in said.items())
    return None


def _ways(feed: FeedFile) -> list[dict[str, Any]]:
    """Return changes of delimiter, quotes and leading spaces, the smallest first."""
    spaces: list[dict[str, Any]] = [] if feed.skip_spaces else [{"skip_spaces": True}]
    quotes = [{"quote": quote} for quote in QUOTES if quote != feed.quote]
    delimiters = [{"delimiter": sign} for sign in (*DELIMITERS, "^", " ") if sign != feed.delimiter]
    return [{}, *spaces, *quotes, *delimiters, *({**sign, **more} for sign in delimiters for more in spaces)]


def _cells(line: str, how: dict[str, Any]) -> set[str]:
    try:
        return {
            composed_text(cell.strip().removeprefix("\ufeff")).casefold()
            for cell in next(csv.reader([line], **how), [])
        }
    except csv.Error:
        return set()
