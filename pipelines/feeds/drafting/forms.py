"""The keys of a draft on how times and amounts are written, as far as the chosen columns show it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pipelines.feeds.drafting.cells import moment, read_otherwise
from pipelines.feeds.drafting.column_choice import ColumnChoice
from pipelines.feeds.drafting.entries import FeedEntry, as_toml
from pipelines.feeds.drafting.seen_column import SeenColumn
from pipelines.feeds.kinds.registry import KINDS
from pipelines.feeds.reading.formats import DOLLARS
from pipelines.feeds.terms.times import EXCEL, UNIX

SWAPPED = (("%m/%d", "%d/%m"), ("%m-%d", "%d-%m"), ("%m.%d", "%d.%m"))


def forms(
    kind: str, choices: Mapping[str, ColumnChoice], joined: Mapping[str, SeenColumn], more: Sequence[SeenColumn]
) -> Iterator[FeedEntry]:
    """Yield the keys. joined: columns of dates, each joined with its times of day. more: further times."""
    times = [
        joined.get(name, choice.seen) for name, choice in choices.items() if KINDS[kind].by_name[name].shape == "time"
    ]
    times += more
    yield from _zone(times)
    yield from _dates(times)
    yield from _empty([choice.seen for choice in choices.values()])
    if (amount := choices.get("amount")) and amount.seen.numbers:
        yield from _numbers(amount.seen)


def _zone(times: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    local = [seen for seen in times if seen.lacks_offset or seen.days]
    if not local:
        return
    named = all({"utc", "gmt"} & set(seen.words) or _says_utc(seen) for seen in local)
    doubt = "" if named else "of times without an offset (America/New_York, ...)"
    yield FeedEntry("timezone", '"UTC"', doubt, "the export says so" if named else "", tuple(local))


def _says_utc(seen: SeenColumn) -> bool:
    return bool(seen.dates) and all(form.endswith("UTC") for alike in seen.dates for form in alike)


def _dates(times: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    found = list(dict.fromkeys(alike[0] for seen in times for alike in seen.dates))
    days, moments = [seen for seen in times if seen.days], [seen for seen in times if seen.is_unix]
    if not found and not days and not moments:
        return
    others = sorted({form for seen in times for form in _read_otherwise(seen)} - set(found))
    doubts = [f"the cells seen fit {', '.join(others)} too"] if others else []
    if clashing := _clashing(found):
        doubts.append(f"some cells are {clashing[0]}, some {clashing[1]}: what fits both is read as the first")
    if days:
        doubts.append("numbers such as a spreadsheet counts days by, from 1900: are these days?")
    if moments:
        doubts.append("numbers such as programs count seconds by, since 1970: are these times?")
    columns = tuple(seen for seen in times if seen.dates or seen.days or seen.is_unix)
    numbered = [*([EXCEL] if days else []), *([UNIX] if moments else [])]
    yield FeedEntry("dates", as_toml([*found, *numbered]), "; ".join(doubts), columns=columns)


_NOTHING = re.compile(r"#?n/a|\(?null\)?|\\n|#null!|#value!|#ref!|nan|undefined", re.IGNORECASE).fullmatch
"""Texts that databases, programs and spreadsheets write for nothing."""


def _empty(chosen: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    """Yield the texts in chosen columns that seem to mean nothing."""
    found = sorted({cell for seen in chosen for cell in seen.cells if _NOTHING(cell)})
    if found:
        columns = tuple(seen for seen in chosen if {*found} & {*seen.cells})
        yield FeedEntry("empty", as_toml(found), "do these texts mean that the cell is empty?", columns=columns)


def _read_otherwise(seen: SeenColumn) -> Iterator[str]:
    """Yield the formats that fit as well as the first, but read some cell as another time."""
    for first, *others in seen.dates:
        for form in others:
            if any(moment(cell, form) != moment(cell, first) for cell in seen.cells):
                yield form


def _clashing(found: Sequence[str]) -> tuple[str, str] | None:
    """Return two formats by which one text can be two different days; None if there are none."""
    for one, other in SWAPPED:
        for first in found:
            for second in (first.replace(one, other), first.replace(other, one)):
                if second != first and second in found:
                    return first, second
    return None


def _numbers(amount: SeenColumn) -> Iterator[FeedEntry]:
    numbers = amount.numbers[0]
    other = read_otherwise(amount.cells, amount.numbers)
    doubt = ""
    if other:
        doubt = f'the cells seen fit decimal = "{other.decimal}", thousands = "{other.thousands}" too'
    if numbers.decimal != ".":
        yield FeedEntry("decimal", as_toml(numbers.decimal), doubt, columns=(amount,))
    if numbers.thousands or (doubt and numbers.decimal == "."):
        yield FeedEntry("thousands", as_toml(numbers.thousands), doubt, columns=(amount,))
    if numbers.currency:
        foreign = [sign for sign in numbers.currency if sign not in DOLLARS]
        few = sum(any(sign in cell for sign in foreign) for cell in amount.cells) * 2 < len(amount.cells)
        own = [sign for sign in numbers.currency if sign in DOLLARS]
        doubt = f"the chart takes US dollars: what has {', '.join(foreign)} is taken for them" if foreign else ""
        if own and few:
            yield FeedEntry("currency", as_toml(own), columns=(amount,))
        elif not foreign or not few:
            yield FeedEntry("currency", as_toml(list(numbers.currency)), doubt, columns=(amount,))
        if foreign and few:
            doubt = f"some amounts are in {', '.join(foreign)}, and rejected: by this line they are taken for dollars"
            yield FeedEntry("currency", as_toml(list(numbers.currency)), doubt, columns=(amount,), is_active=False)
