"""The marks of the files at the last look, which the cursor of the sensor keeps.

A mark is a short hash of name, size and times.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.dagster.cursors import understood
from pipelines.dagster.inbox.files import BYTES_OF_MARK


@dataclass(frozen=True, order=True)
class Asked:
    """The requests for a file: how many, and when it is due again if it is still there, in seconds since 1970."""

    tries: int = 0
    due: int = 0


@dataclass(frozen=True)
class Seen:
    """The marks of the files at the last look, which the cursor keeps.

    still: to be compared at the next look. asked: requested. left: no feed takes them, or the link is refused.
    feeds: a hash of the feeds and settings that decided what is left.
    """

    still: frozenset[str] = frozenset()
    asked: Mapping[str, Asked] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    feeds: str = ""


def to_cursor(seen: Seen) -> str:
    """Return the cursor: marks joined to one text, grouped by tries and due time to keep it short."""
    alike: dict[Asked, list[str]] = {}
    for mark, each in seen.asked.items():
        alike.setdefault(each, []).append(mark)
    asked = [[each.tries, each.due, "".join(sorted(marks))] for each, marks in sorted(alike.items())]
    still, left = ("".join(sorted(marks)) for marks in (seen.still, seen.left))
    return json.dumps({"still": still, "asked": asked, "left": left, "feeds": seen.feeds})


def from_cursor(cursor: str | None) -> Seen:
    return understood(cursor, _seen, Seen())


def _seen(said: Any) -> Seen:
    still, left = (_marks(said.get(name, "")) for name in ("still", "left"))
    asked = said.get("asked", [])
    if isinstance(asked, str):  # an older version requested each file once, and kept no tries
        asked = [[1, 0, asked]]
    by_mark = {mark: Asked(int(tries), int(due)) for tries, due, marks in asked for mark in _marks(marks)}
    return Seen(still, by_mark, left, str(said.get("feeds", "")))


def _marks(text: str) -> frozenset[str]:
    letters = BYTES_OF_MARK * 4 // 3
    return frozenset(text[at : at + letters] for at in range(0, len(text), letters))
