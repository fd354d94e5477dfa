"""The columns of a file besides those that its feed names."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.dialect import mending_key
from pipelines.feeds.reading.reject_marks import MARKS
from pipelines.feeds.terms.paths import parse_path
from pipelines.feeds.terms.schema import named_columns, places_of, position
from pipelines.feeds.terms.texts import DELIMITERS
from pipelines.home.batch import UnreadableFile, printable_name
from pipelines.home.counted import counted

FirstLines = Callable[[], Sequence[str]]
"""Returns the beginning of a text file."""


def check_header(feed: Feed, header: Sequence[str], file_name: str, first_lines: FirstLines) -> None:
    """Raise `UnreadableFile` if a file lacks a column that its feed names, or has such a column twice."""
    names = named_columns(feed.file)
    there, needed = places_of(header), [name for name, must in names.items() if must]
    if lacking := [name for name in needed if name not in there]:
        if mends := mending_key(first_lines(), feed.file, needed):
            hint = f"the file has {'it' if len(lacking) == 1 else 'them'} if you set {mends} in the feed file"
        else:
            found = in_their_place(lacking, names, header, feed.file.delimiter)
            hint = f"{found + '; ' if found else ''}check the export, or the columns of the feed file"
        raise UnreadableFile(
            f"{file_name}: the header lacks {', '.join(lacking)}, which the feed {feed.name} reads; {hint}"
        )
    moved = [name for name in names if name in header and position(name) not in (None, header.index(name) + 1)]
    if moved:
        raise UnreadableFile(
            f"{file_name}: the feed names column {moved[0]} by its position, but another column of the header has this"
            " as its name; rename that column in the export"
        )
    twice = [name for name in names if header.count(name) > 1]
    if twice:
        raise UnreadableFile(
            f"{file_name}: the header has {', '.join(twice)} more than once; export each column once, "
            "or name the column by its position"
        )


def unnamed_columns(feed: Feed, header: Sequence[str]) -> list[str]:
    """Return the columns of a file that its feed does not name."""
    names = {*named_columns(feed.file), *(MARKS if feed.builtin else ())}
    return [name for place, name in enumerate(header, 1) if name and not names & {name, f"#{place}"}]


def path_heads(feed: Feed) -> set[str]:
    """Return the top-level names that the feed's paths begin with or are, and `resourceType`, which every resource
    has.
    """
    names = named_columns(feed.file)
    return {"resourceType", *names, *(str(parse_path(name)[0]) for name in names)}


NAMED = 3


def in_their_place(lacking: Sequence[str], names: Iterable[str], header: Sequence[str], delimiter: str) -> str | None:
    """Return a clause on names of the header that resemble the feed's; None if there are none.

    Only names that differ from the feed's in their spelling are shown, since the supposed header may be a row of data.
    names: all columns of the feed. lacking: the columns that are not in the header.
    """
    if other := _delimiter(lacking, delimiter.join(header), delimiter):
        there, says = ("tabs" if sign == "\t" else repr(sign) for sign in (other, delimiter))
        return f"the file seems to be delimited by {there}, but the feed says {says}"
    there_by_spelling = {spelled(name): name for name in header}
    alike = [(there_by_spelling[spelled(name)], name) for name in lacking if spelled(name) in there_by_spelling]
    if alike:
        named = (f"'{printable_name(there)}', but the feed names '{name}'" for there, name in alike[:NAMED])
        return f"the file has {'; '.join(named)}"
    if {spelled(name) for name in names}.isdisjoint(there_by_spelling):
        return (
            f"that line has {counted(len(header), 'field')}, and no column that the feed names, so it may not be a "
            "header (if the file has none, set header = 0 and name columns by position)"
        )
    return None


def _delimiter(lacking: Sequence[str], text: str, delimiter: str) -> str | None:
    """Return the delimiter that separates the lacking names, if the feed's own does not; else None."""
    wanted = {spelled(name) for name in lacking}
    found = {
        other: len(wanted & {spelled(part) for part in text.split(other)})
        for other in DELIMITERS
        if other != delimiter and other in text
    }
    best = max(found, key=lambda other: found[other], default=None)
    return best if best and found[best] and not wanted & {spelled(part) for part in text.split(delimiter)} else None


def spelled(name: str) -> str:
    """Return a name without case, spaces and signs; a name without letters and digits is returned unchanged."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"[\W_]+", "", plain) or plain
