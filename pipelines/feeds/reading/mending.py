"""The key of a feed file that mends a header: the line on which its names are, and how they are written.

Nothing of a line is repeated: a supposed header may be a row.
"""

import csv
import json
from collections.abc import Collection, Sequence
from typing import Any

from pipelines.feeds.reading.dialect import can_be_read, dialect
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed

DELIMITERS = (",", ";", "\t", "|", "^", " ")
QUOTES = ("'", '"')


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
