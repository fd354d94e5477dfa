"""The columns of a file beside those that its feed names."""

from collections.abc import Callable, Sequence

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.unlike import in_their_place
from pipelines.feeds.reading.marks import MARKS
from pipelines.feeds.reading.mending import mending_key
from pipelines.feeds.terms.names import named_columns
from pipelines.feeds.terms.paths import Path, parse_path
from pipelines.home.batch import Unreadable

FirstLines = Callable[[], Sequence[str]]
"""Give the beginning of a file of text."""


def check_header(feed: Feed, header: Sequence[str], file_name: str, first_lines: FirstLines) -> None:
    """A file lacks no column that its feed names, and has none of these twice."""
    names = named_columns(feed.file)
    there = {*header, *(f"#{place}" for place in range(1, len(header) + 1))}
    lacking = [name for name, must in names.items() if must and name not in there]
    if lacking:
        if mends := mending_key(first_lines(), feed.file, [name for name, must in names.items() if must]):
            raise Unreadable(
                f"{file_name}: the header lacks {', '.join(lacking)}, which the feed {feed.name} takes; "
                f"the file has {'it' if len(lacking) == 1 else 'them'} with {mends}: say so in the feed file"
            )
        found = in_their_place(lacking, names, header, feed.file.delimiter)
        raise Unreadable(
            f"{file_name}: the header lacks {', '.join(lacking)}, which the feed {feed.name} takes; "
            f"{found + '; ' if found else ''}"
            "check the export, or the columns of the feed file"
        )
    twice = [name for name in names if header.count(name) > 1]
    if twice:
        raise Unreadable(
            f"{file_name}: the header has {', '.join(twice)} more than once; export each column once, "
            "or name the column by its position"
        )


def unnamed_columns(feed: Feed, header: Sequence[str]) -> list[str]:
    """The columns of a file that its feed does not name."""
    names = {*named_columns(feed.file), *(MARKS if feed.builtin else ())}
    return [name for place, name in enumerate(header, 1) if name and not names & {name, f"#{place}"}]


def path_heads(feed: Feed) -> set[str]:
    """The top-level names that the feed's paths begin with, and the one that every resource has."""
    heads = {"resourceType"}
    for name in named_columns(feed.file):
        path: Path = parse_path(name)
        heads.add(str(path[0]))
    return heads
