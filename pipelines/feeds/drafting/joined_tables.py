"""Two tables of one archive that belong together: the table with the records, and the columns that join the two."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from pipelines.feeds.drafting.column_choice import ColumnChoice, column_choices, kind_of_export
from pipelines.feeds.drafting.entries import FeedEntry, as_toml
from pipelines.feeds.drafting.first_keys import pattern_within
from pipelines.feeds.drafting.mapping_lines import reference_doubt
from pipelines.feeds.drafting.seen_column import SeenColumn, columns_of
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.files.rules import ASKED
from pipelines.feeds.kinds.registry import KINDS
from pipelines.feeds.terms.schema import position

_SHARE = 0.8
"""The least share of the second table's values that must be keys of the first."""
_Columns = Sequence[tuple[SeenColumn, set[str]]]
"""The columns of a table, each with its values."""
_COMMENTS = ("comment", "comment_author_id", "comment_time")
_Ways = Iterator[tuple[float, tuple[Export, Export, str, str]]]


def joined_of(tables: Sequence[Export]) -> Export:
    """Return the table with the records. If another table shares its keys, it holds that table and the joined columns.

    A table of payments is never the second table: the people, for example, whom its rows name are no records.
    """
    seen = [(table, [(column, set(column.cells)) for column in columns_of(table)]) for table in tables]
    found = [
        each
        for one, other in permutations(seen, 2)
        if kind_of_export([column for column, _ in other[1]], other[0]).kind != "payments"
        for each in _ways(*one, *other)
    ]
    if not found:
        return tables[0]
    _, (first, second, key, column) = max(found, key=lambda each: each[0])
    first.second, first.on = second, (key, column)
    return first


def _ways(first: Export, keys: _Columns, second: Export, others: _Columns) -> _Ways:
    """Yield the ways to join two tables, each with a score. A column whose keys repeat scores higher."""
    for key, known in keys:
        if not key.is_key or key.is_time or (first.header and position(key.name) is not None):
            continue
        for other, values in others:
            share = len(values & known) / len(values) if values else 0.0
            if share >= _SHARE and position(other.name) is None:
                alike = bool(set(key.words) & set(other.words))
                yield share + alike + 2 * (not other.is_key), (first, second, key.name, other.name)


def comments_of(export: Export) -> dict[str, ColumnChoice]:
    """Return the second table's columns by their part of a comment; empty if the table has no comments."""
    if export.second is None:
        return {}
    columns = columns_of(export.second)
    found = {
        ours: choice for ours, choice in column_choices("tasks", columns).items() if position(choice.seen.name) is None
    }
    if "comment" not in found and "description" in found and _says_comments(export.second, columns):
        found["comment"] = found["description"]
    if "comment" not in found:
        return {}
    known = ((ours, found.get(ours) or found.get(_AS_OF_A_TASK.get(ours, ""))) for ours in _COMMENTS)
    return {
        ours: choice._replace(seen=replace(choice.seen, name=f"comments.{choice.seen.name}"))
        for ours, choice in known
        if choice
    }


_AS_OF_A_TASK = {"comment_author_id": "requester_id", "comment_time": "authored"}
"""A comment's author and time have the names of a task's requester and time."""


def _says_comments(table: Export, columns: Sequence[SeenColumn]) -> bool:
    """True if the name of the table, or of a column such as `Comment ID`, says that it holds comments."""
    stem = Path(table.file_name).stem.lower()
    return any("comment" in word for word in (stem, *(word for seen in columns for word in seen.words)))


def join_entries(export: Export, comments: Mapping[str, ColumnChoice]) -> Iterator[FeedEntry]:
    """Yield the proposal of a join, each line with its table. comments: the result of `comments_of`."""
    if export.second is None:
        return
    name, inner = "comments" if comments else "other", Path(export.second.file_name)
    table, (key, column) = f"join.{name}", export.on
    said = f"{as_toml(inner.name)} of the archive has values of {as_toml(key)} in {as_toml(column)}"
    doubt = f"{said}: do they belong together? Then with all lines of [{table}]"
    part = FeedEntry("", "", note=f"with [{table}]", is_active=False, goes_with=table)
    if comments:
        yield FeedEntry("one_row_per", '"comment"', doubt, is_active=False, begins=table)
    others = [each for each in (Path(export.file_name).name, *export.beside) if each != inner.name]
    files = part._replace(key="files", value=as_toml([pattern_within(inner.name, others)]), note="", section=table)
    yield files if comments else files._replace(doubt=doubt, begins=table, goes_with="")
    yield part._replace(key="on", value=f"{{ {as_toml(key)} = {as_toml(column)} }}", note="", section=table)
    note = "each of its rows is one; without it, each of the first file"
    yield part._replace(key="one_row_per", value=as_toml(name), note=note, section=table)
    for ours, (seen, rivals, is_known) in comments.items():
        shape, source = KINDS["tasks"].by_name[ours].shape, as_toml(seen.name)
        doubts = [] if is_known else ["is it this column?"]
        if rivals:
            doubts.append(f"or {', '.join(as_toml(f'comments.{rival.name}') for rival in rivals)}?")
        if isinstance(shape, tuple):
            doubts.append(reference_doubt(shape, seen, source))
        said = f"with [{table}]; {'; '.join(doubts)}" if doubts else ""
        yield part._replace(key=ours, value=source, doubt=said, columns=(seen,), section="columns")
    if comments and "comment_author_id" not in comments:
        said = f"with [{table}]; a comment needs its author: which column?"
        yield part._replace(key="comment_author_id", value=as_toml(ASKED), doubt=said, section="columns")
