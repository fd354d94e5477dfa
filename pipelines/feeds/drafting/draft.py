"""Draft a feed file from an export: fill in what the export shows, and note what a person must decide.

The draft contains names of columns, formats, and the texts of columns that distinguish kinds of rows, such as a status
or a method. It contains no other value of a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipelines.feeds.drafting.column_choice import ColumnChoice, column_choices, kind_of_export
from pipelines.feeds.drafting.decisions import Ask, lines_with_answers
from pipelines.feeds.drafting.entries import FeedEntry, Line, as_toml, rendered
from pipelines.feeds.drafting.export_beginning import look_at
from pipelines.feeds.drafting.first_keys import head
from pipelines.feeds.drafting.forms import forms
from pipelines.feeds.drafting.joined_tables import comments_of, join_entries
from pipelines.feeds.drafting.mapping_lines import (
    answer_maps,
    column_lines,
    empty_lines,
    is_wide,
    may_be_question,
    question_lines,
)
from pipelines.feeds.drafting.row_kinds import (
    other_tables,
    rows_to_leave_out,
    rows_to_take,
    titles,
    titles_between,
    trailer,
)
from pipelines.feeds.drafting.seen_column import SeenColumn, columns_of, seen_together
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.kinds.registry import KINDS

_CLOCK_WORDS = frozenset("time uhrzeit zeit of day posted transaction payment created sale".split())


def draft(path: Path, kind: str | None = None, ask: Ask | None = None) -> str:
    """Return the text of a feed file. Raises Unreadable if the file is no text.

    kind: the kind of the records; it is guessed if None. ask: decides the lines that say DECIDE.
    """
    lines = draft_lines(path, kind)
    return rendered(lines_with_answers(lines, ask) if ask else lines)


def draft_lines(path: Path, kind: str | None = None) -> list[Line]:
    """Return the lines of a feed file. Raises Unreadable."""
    export = look_at(path)
    columns = columns_of(export)
    guess = kind_of_export(columns, export)
    guess = guess._replace(kind=kind, is_sure=True) if kind else guess
    return list(_lines(export, columns, guess.kind, head(path, guess, export)))


def _lines(export: Export, columns: Sequence[SeenColumn], kind: str, first: Iterator[Line]) -> Iterator[Line]:
    yield "# Drafted from one export. Lines that say DECIDE want a person."
    yield "# Then: chartferry feeds check THIS_FILE --sample EXPORT"
    yield from first
    if export.objects and all("resourceType" in found for found in export.objects):
        yield "resources = true"
        return
    choices = column_choices(kind, columns)
    clocks = _clocks(kind, choices, columns, export)
    joined = {name: seen_together(choices[name].seen, clock, export) for name, clock in clocks.items()}
    comments = comments_of(export) if kind == "tasks" else {}
    proposed = list(join_entries(export, comments))
    yield from forms(kind, choices, joined, [comments["comment_time"].seen] if "comment_time" in comments else [])
    yield from (entry for entry in proposed if not entry.section)
    if not columns or not any(seen.rows for seen in columns):
        yield "# the file has no rows to look at"
    yield from other_tables(export)
    yield from titles_between(export, kind)
    used = {id(choice.seen) for choice in choices.values()} | {id(clock) for clock in clocks.values()}
    spare = [seen for seen in columns if id(seen) not in used]
    rows = list(_rows(kind, choices, spare, export))
    yield from rows
    told = {id(seen) for line in rows if isinstance(line, FeedEntry) for seen in line.columns}
    spare = [seen for seen in spare if id(seen) not in told]
    if table := [entry for entry in proposed if entry.section.startswith("join.")]:
        yield ""
        yield f"[{table[0].section}]"
        yield from table
    yield ""
    yield "[columns]"
    yield from column_lines(kind, choices, columns, clocks)
    empty = list(empty_lines(kind, choices, spare))
    yield from empty
    yield from (entry for entry in proposed if entry.section == "columns")
    spare = [seen for seen in spare if all(seen not in line.columns for line in empty)]
    yield from _rest(kind, choices, spare)


def _clocks(
    kind: str, choices: Mapping[str, ColumnChoice], columns: Sequence[SeenColumn], export: Export
) -> dict[str, SeenColumn]:
    """Return, by column of dates, the only column of times of day that belongs to it."""
    times = [seen for seen in columns if seen.clock and set(seen.words) <= _CLOCK_WORDS]
    if len(times) != 1 or export.is_objects:
        return {}
    by_name = KINDS[kind].by_name
    dates = [
        name
        for name, choice in choices.items()
        if by_name[name].shape == "time" and name in ("paid_on", "authored") and _is_date(choice.seen)
    ]
    return {dates[0]: times[0]} if dates else {}


def _is_date(seen: SeenColumn) -> bool:
    """True if the cells are dates without a time of day."""
    if seen.iso:
        return all(len(cell) == 10 for cell in seen.cells)
    return bool(seen.dates) and not any("%H" in form or "%I" in form for alike in seen.dates for form in alike)


def _rows(
    kind: str, choices: Mapping[str, ColumnChoice], spare: Sequence[SeenColumn], export: Export
) -> Iterator[Line]:
    """Yield the tables that say which rows are taken, which are left out, and what the last row is."""
    key = choices.get(KINDS[kind].key)
    in_doubt = kind == "payments" and "amount" in choices and bool(choices["amount"].rivals)
    tables = {
        "take": rows_to_take(spare, kind, in_doubt=in_doubt),
        "skip": (*rows_to_leave_out(export), *titles(export)),
        "trailer": trailer(export, key.seen if key else None),
    }
    for name, entries in tables.items():
        if found := list(entries):
            yield ""
            yield f"[{name}]"
            yield from found


def _rest(kind: str, choices: Mapping[str, ColumnChoice], spare: Sequence[SeenColumn]) -> Iterator[Line]:
    """Yield the columns that are not mapped: the questions, and the names of the others."""
    if is_wide(kind, choices):
        asked = [seen for seen in spare if may_be_question(seen)]
        lines = list(question_lines(asked))
        yield ""
        yield "[questions]"
        yield from lines
        if maps := list(answer_maps(lines)):
            yield ""
            yield "[maps.frequency]"
            yield from maps
        spare = [seen for seen in spare if seen not in asked]
    names = {choice.seen.label for choice in choices.values() if choice.seen.name != choice.seen.label}
    unused = [seen for seen in spare if seen.label not in names]
    if unused:
        yield ""
        yield "# Not used: " + ", ".join(as_toml(seen.name) for seen in unused)
