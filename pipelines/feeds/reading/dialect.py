"""The row format of a feed, as Python's `csv` takes it, and others that would mend a row or a header.

Nothing of a line is repeated: a supposed header may be a row.
"""

import csv
import json
from collections.abc import Collection, Sequence
from typing import Any

from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed

WAYS: tuple[dict[str, Any], ...] = (
    {"skip_spaces": True},
    {"quote": "'"},
    {"escape": "\\"},
    {"quote": "'", "skip_spaces": True},
)
"""Other ways to write rows, which a row may show: the feed file takes each by these keys."""
DELIMITERS = (",", ";", "\t", "|", "^", " ")
QUOTES = ("'", '"')


def dialect(feed: FeedFile) -> dict[str, Any]:
    """The arguments that reader and writer share."""
    return {
        "delimiter": feed.delimiter,
        "quotechar": feed.quote or None,
        "quoting": csv.QUOTE_MINIMAL if feed.quote else csv.QUOTE_NONE,
        "escapechar": feed.escape or None,
        "doublequote": True,
        "skipinitialspace": feed.skip_spaces,
    }


def mended(fault: Fault, raw: str, feed: FeedFile, width: int) -> Fault:
    """The fault of a row with the key of the feed file that would mend it, where the row is whole by another way."""
    for changes in WAYS:
        other = feed.model_copy(update=changes)
        if other != feed and can_be_read(other) and _has(raw, changes) and _width(raw, other) == width:
            said = " and ".join(f"{key} = {json.dumps(value)}" for key, value in changes.items())
            return Fault(fault.rule, f"{fault.message}; it is whole with {said} in the feed file")
    return fault


def can_be_read(feed: FeedFile) -> bool:
    """True if delimiter, quote and escape are different signs, and no blank is skipped that is the delimiter."""
    signs = [sign for sign in (feed.delimiter, feed.quote, feed.escape) if sign]
    return len(set(signs)) == len(signs) and not (feed.skip_spaces and feed.delimiter == " ")


def _has(raw: str, changes: dict[str, Any]) -> bool:
    """True if a row has the signs that a way to write it has."""
    return changes.get("quote", "") in raw and changes.get("escape", "") in raw


def _width(raw: str, feed: FeedFile) -> int:
    """The number of fields of one row, 0 where the text is none or several."""
    try:
        rows = list(csv.reader(raw.splitlines(keepends=True), strict=True, **dialect(feed)))
    except csv.Error:
        return 0
    return len(rows[0]) if len(rows) == 1 else 0


# -- a header that lacks names


def mending_key(lines: Sequence[str], feed: FeedFile, names: Collection[str]) -> str | None:
    """Return the keys to set, as TOML, or None where no other way to read the lines has all the names."""
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
                    return None  # the names differ in their spelling alone
                return " and ".join(f"{key} = {json.dumps(value)}" for key, value in said.items())
    return None


def _ways(feed: FeedFile) -> list[dict[str, Any]]:
    """Changes of delimiter, quotes and the spaces before these, the smallest first."""
    spaces: list[dict[str, Any]] = [] if feed.skip_spaces else [{"skip_spaces": True}]
    quotes = [{"quote": quote} for quote in QUOTES if quote != feed.quote]
    delimiters = [{"delimiter": sign} for sign in DELIMITERS if sign != feed.delimiter]
    return [{}, *spaces, *quotes, *delimiters, *({**sign, **more} for sign in delimiters for more in spaces)]


def _cells(line: str, how: dict[str, Any]) -> set[str]:
    try:
        return {
            composed(cell.strip().removeprefix("\ufeff")).casefold() for cell in next(csv.reader([line], **how), [])
        }
    except csv.Error:
        return set()
