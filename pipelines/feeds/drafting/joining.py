"""Two tables of one archive that belong together: the one with the records, and the columns that join both."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from pipelines.feeds.drafting.choosing import chosen, kind_of_export
from pipelines.feeds.drafting.entries import as_toml
from pipelines.feeds.drafting.head import stem_of
from pipelines.feeds.drafting.seen import Seen, columns_of
from pipelines.feeds.drafting.sniffing import Export

_SHARE = 0.8
"""Of the values of the second table's column, so many are keys of the first."""
_Columns = Sequence[tuple[Seen, set[str]]]
"""The columns of a table, each with its values."""
_COMMENTS = ("comment", "comment_author_id", "comment_time")


class Pair(NamedTuple):
    """Two tables, the first with a key in each row, and the column of the second that has these keys."""

    first: Export
    second: Export
    key: str
    column: str


def pair_of(tables: Sequence[Export]) -> Pair | None:
    """Two tables as they belong together, None where no column of one has the keys of the other.

    A table of payments is no second one: what its rows name, such as people, are no records of the import.
    """
    seen = [(table, [(column, set(column.cells)) for column in columns_of(table)]) for table in tables]
    found = [
        each
        for first, second in permutations(seen, 2)
        if kind_of_export([column for column, _ in second[1]], second[0]).kind != "payments"
        for each in _pairs(*first, *second)
    ]
    return max(found, key=lambda each: each[0], default=(0.0, None))[1]


def _pairs(first: Export, keys: _Columns, second: Export, others: _Columns) -> Iterator[tuple[float, Pair]]:
    """The ways to join two tables, each with how much speaks for it: keys that come again say more than others."""
    for key, known in keys:
        if not key.is_key or key.is_time:
            continue
        for other, values in others:
            share = len(values & known) / len(values) if values else 0.0
            if share >= _SHARE and not other.name.startswith("#"):
                alike = bool(set(key.words) & set(other.words))
                yield share + alike + 2 * (not other.is_key), Pair(first, second, key.name, other.name)


def join_lines(pair: Pair) -> list[str]:
    """The proposal of a join, as comments at the end of a draft."""
    name, inner = "other", Path(pair.second.file_name)
    columns = columns_of(pair.second)
    comments = {ours: choice.seen.name for ours, choice in chosen("tasks", columns).items()}
    if "comment" not in comments and "description" in comments and _says_comments(inner.stem, columns):
        comments["comment"] = comments["description"]
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


def _says_comments(stem: str, columns: Sequence[Seen]) -> bool:
    """True if a table is of comments by its name, or by that of a column such as `Comment ID`."""
    return any("comment" in word for word in (stem.lower(), *(word for seen in columns for word in seen.words)))


def _by_task(ours: str, comments: dict[str, str]) -> str | None:
    """The author and the time of a comment go by the names of those of a task."""
    return comments.get({"comment_author_id": "requester_id", "comment_time": "authored"}.get(ours, ""))
