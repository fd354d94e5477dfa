"""Hints on columns that a file does not have: names in its header that resemble those of the feed.

Of the file, only names are shown that differ from a feed's by their spelling: a supposed header may be a row.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from pipelines.home.batch import shown

DELIMITERS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
NAMED = 3


def in_their_place(lacking: Sequence[str], names: Iterable[str], header: Sequence[str], delimiter: str) -> str | None:
    """One clause, or None where nothing is seen. names: all columns of the feed; lacking: those not in the header."""
    if other := _delimiter(lacking, delimiter.join(header), delimiter):
        says = DELIMITERS.get(delimiter, repr(delimiter))
        return f"the file seems to be delimited by {DELIMITERS[other]}, where the feed says {says}"
    there_by_spelling = {spelled(name): name for name in header}
    alike = [(there_by_spelling[spelled(name)], name) for name in lacking if spelled(name) in there_by_spelling]
    if alike:
        named = (f"'{shown(there)}' where the feed names '{name}'" for there, name in alike[:NAMED])
        return f"the file has {', '.join(named)}"
    if {spelled(name) for name in names}.isdisjoint(there_by_spelling):
        return (
            f"none of the {len(header)} fields of that line is a column that the feed names, so it may be no header "
            "(header = 0 and columns by position, where there is none)"
        )
    return None


def _delimiter(lacking: Sequence[str], text: str, delimiter: str) -> str | None:
    """The delimiter between names that the feed's own does not tell apart."""
    wanted = {spelled(name) for name in lacking}
    found = {
        other: len(wanted & {spelled(part) for part in text.split(other)})
        for other in DELIMITERS
        if other != delimiter and other in text
    }
    best = max(found, key=lambda other: found[other], default=None)
    return best if best and found[best] and not wanted & {spelled(part) for part in text.split(delimiter)} else None


def spelled(name: str) -> str:
    """A name without case, spaces and signs; what has no letter or figure stays as it is."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"[\W_]+", "", plain) or plain
