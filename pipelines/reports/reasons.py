"""The words beside a rule on the page: the rule's statement, and the most frequent message of records that break it.

A message may quote a code, an id or a key from a file, and a target's message may say anything. An example shows none
of these: quotes are left out. From a target's message, numbers and names are left out too. The rest is shown only if
records of enough patients share it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from pipelines.feeds.terms.rulebook import rules
from pipelines.reports.views.fhir_types import is_resource

ENOUGH = 5
"""A target's words are shown if records of at least this many patients share them, so that they identify nobody."""
LEFT_OUT = "…"
ISSUE_TYPES = tuple(
    """invalid structure required value invariant security login unknown expired forbidden suppressed processing
    not-supported duplicate multiple-matches not-found deleted too-long code-invalid extension too-costly business-rule
    conflict transient lock-error no-store exception timeout incomplete throttled informational""".split()
)
"""FHIR's codes of issues. A target's own code may be any word."""
_QUOTES = (
    re.compile(r"(?<=option code: ).*"),
    re.compile(r"(?<=\bgiven: ).*"),
    re.compile(r"(?<=\bnote )(?!is\b|has\b|of\b|than\b|belongs\b)\S+"),
    re.compile(r"(?<=[A-Za-z]/)[^\s,;<]+"),
    re.compile(r"'(?! )[^']{2,}'|\"(?! )[^\"]{2,}\"|`[^`]+`"),
    re.compile(r"\S*(?:\d[\w.-]*[A-Za-z]|[A-Za-z][\w.-]*\d)\S*"),
)
"""The quotes in messages: the code of an option, ids after a type, texts in quotes, and words that hold digits."""
_NUMBER = re.compile(r"\S*\d\S*")
_PART = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_REPEATED = re.compile(rf"{LEFT_OUT}(?:[\s'.,-]*{LEFT_OUT})+")
_PLACE = re.compile(r"\[\d+\]")
_STARTS = {
    "cannot",
    "could",
    "duplicate",
    "error",
    "failed",
    "http",
    "invalid",
    "missing",
    "unprocessable",
    "validation",
}


@dataclass(frozen=True)
class SharedReason:
    """A reason that records share: the element or column, the message without quotes, and the number of records."""

    where: str
    message: str
    records: int

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


def without_quotes(message: str) -> str:
    """Return the message with `LEFT_OUT` in the place of every quote."""
    for pattern in _QUOTES:
        message = pattern.sub(LEFT_OUT, message)
    return message


def without_names(message: str, names: Collection[str]) -> str:
    """Return a target's message without its quotes, its numbers, and every word that may be a name.

    A word with a capital may be a name, unless it is a FHIR resource type, or it begins the message and occurs in our
    own sentences. names: the words in the data's names, in lower case.
    """

    def shown(word: re.Match[str]) -> str:
        text = word[0]
        if any(part in names for part in _PART.findall(text.lower())):
            return LEFT_OUT
        begins = word.start() == 0 and text.lower() in _own_words()
        return text if text.islower() or begins or is_resource(text) else LEFT_OUT

    return _REPEATED.sub(LEFT_OUT, _WORD.sub(shown, _NUMBER.sub(LEFT_OUT, without_quotes(message))))


@cache
def _own_words() -> frozenset[str]:
    """Return the words of our own sentences, in lower case."""
    return frozenset(_words(f"{entry.sentence} {entry.do}" for entry in rules().values())) | _STARTS


def _words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in _PART.findall(text)}


def names_in(texts: Iterable[str]) -> set[str]:
    """Return the words of the names in the data, in lower case, without initials."""
    return {word for word in _words(texts) if len(word) > 1}


def most_said(
    reasons: Iterable[tuple[str | None, str | None, int, Sequence[str] | None]],
    words_of_target: bool,
    names: Collection[str],
) -> SharedReason | None:
    """Return the reason that most records share, or None if no reason may be shown.

    Args:
        reasons: element or column, message, number of records, and up to `ENOUGH` of the records' patients.
        words_of_target: True if the messages are the target's, not ours.
        names: see `without_names`.
    """
    found = Counter[tuple[str, str]]()
    of = defaultdict[tuple[str, str], set[str]](set)
    for where, message, records, patients in reasons:
        if not message:
            continue
        place = _PLACE.sub("", where or "")
        if words_of_target:
            shared = without_names(place, names), without_names(message, names)
        else:
            shared = place, without_quotes(message)
        found[shared] += records
        if len(of[shared]) < ENOUGH:
            of[shared].update(patients or ())
    for (where, message), records in found.most_common():
        if not words_of_target or (len(of[where, message]) >= ENOUGH and _WORD.search(message)):
            return SharedReason(where, message, records)
    return None
