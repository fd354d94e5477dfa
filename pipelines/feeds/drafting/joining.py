"""Two tables of one archive that belong together: the one with the records, and the columns that join both."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from pipelines.feeds.drafting.choosing import chosen
from pipelines.feeds.drafting.entries import as_toml
from pipelines.feeds.drafting.head import stem_of
from pipelines.feeds.drafting.seen import columns_of
from pipelines.feeds.drafting.sniffing import Export

_SHARE = 0.8
"""Of the values of the second table's column, so many are keys of the first."""
_COMMENTS = ("comment", "comment_author_id", "comment_time")


class Pair(NamedTuple):
    """Two tables, the first with a key in each row, and the column of the second that has these keys."""

    first: Export
    second: Export
    key: str
    column: str


def pair_of(tables: Sequence[Export]) -> Pair | None:
    """Two tables as they belong together, None where no column of one has the keys of the other."""
    found = [each for first, second in permutations(tables, 2) for each in _pairs(first, second)]
    return max(found, key=lambda each: each[0], default=(0.0, None))[1]


def _pairs(first: Export, second: Export) -> Iterator[tuple[float, Pair]]:
    """The ways to join two tables, each with how much speaks for it: keys that come again say more than others."""
    for key in columns_of(first):
        if not key.is_key or key.is_time:
            continue
        for other in columns_of(second):
            values = set(other.cells)
            share = len(values & set(key.cells)) / len(values) if values else 0.0
            if share >= _SHARE and not other.name.startswith("#"):
                alike = bool(set(key.words) & set(other.words))
                yield share + alike + 2 * (not other.is_key), Pair(first, second, key.name, other.name)


def join_lines(pair: Pair) -> list[str]:
    """The proposal of a join, as comments at the end of a draft."""
    name, inner = "other", Path(pair.second.file_name)
    comments = {ours: choice.seen.name for ours, choice in chosen("tasks", columns_of(pair.second)).items()}
    is_of_comments = "comment" in comments
    if is_of_comments:
        name = "comments"
    said = f"{as_toml(inner.name)} of the archive has values of {as_toml(pair.key)} in {as_toml(pair.column)}"
    lines = [
        f"# DECIDE: {said}: do they belong together? Then with these lines:",
        *(['# one_row_per = "comment"  # above the tables'] if is_of_comments else []),
        f"# [join.{name}]",
        f"# files = {as_toml([f'{stem_of(inner.stem)}*{inner.suffix}'])}",
        f"# on = {{ {as_toml(pair.key)} = {as_toml(pair.column)} }}",
        f"# one_row_per = {as_toml(name)}  # each of its rows is one; without it, each of the first file",
    ]
    lines += [
        f"# {ours} = {as_toml(f'{name}.{column}')}  # in [columns]"
        for ours in _COMMENTS
        if is_of_comments and (column := comments.get(ours) or _by_task(ours, comments))
    ]
    return lines


def _by_task(ours: str, comments: dict[str, str]) -> str | None:
    """The author and the time of a comment go by the names of those of a task."""
    return comments.get({"comment_author_id": "requester_id", "comment_time": "authored"}.get(ours, ""))
