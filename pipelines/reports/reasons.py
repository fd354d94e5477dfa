"""The words beside a rule on the page: what is true when all is well, and what was said most often where it was not.

A message may quote a code, an id or a key from a file, and a target's message may say anything. An example shows none
of these: what a message quotes is left out, and a target's words are shown only where enough records share them.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ENOUGH = 5
"""A target's words are shown if so many records share them: then they tell of no one person."""
LEFT_OUT = "…"
_QUOTES = (
    re.compile(r"(?<=option code: ).*"),
    re.compile(r"(?<=\bgiven: ).*"),
    re.compile(r"(?<=\bnote )(?!is\b|has\b|of\b|than\b|belongs\b)\S+"),
    re.compile(r"(?<=[A-Za-z]/)[^\s,;<]+"),
    re.compile(r"'(?! )[^']{2,}'|\"(?! )[^\"]{2,}\"|`[^`]+`"),
    re.compile(r"\S*(?:\d[\w.-]*[A-Za-z]|[A-Za-z][\w.-]*\d)\S*"),
)
"""What messages quote: the code of an option, ids after a type, texts in quotes, and words that hold digits."""
_PLACE = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Said:
    """A reason that records share: the element or column that it is about, the message without quotes, their number."""

    where: str
    message: str
    records: int

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


def without_quotes(message: str) -> str:
    """Return the message with `LEFT_OUT` in the place of everything that it quotes."""
    for pattern in _QUOTES:
        message = pattern.sub(LEFT_OUT, message)
    return message


def most_said(reasons: Iterable[tuple[str | None, str | None, int]], words_of_target: bool) -> Said | None:
    """Return the reason that most records share, or None if none may be shown.

    reasons: element or column, message, and number of records. words_of_target: the messages are not our own.
    """
    found = Counter[tuple[str, str]]()
    for where, message, records in reasons:
        if message:
            found[_PLACE.sub("", where or ""), without_quotes(message)] += records
    for (where, message), records in found.most_common(1):
        if records >= ENOUGH or not words_of_target:
            return Said(where, message, records)
    return None
