"""Show the first rows of an export as a feed reads them, for the person who writes the feed."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Needs
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.mapping.origins import Origins
from pipelines.feeds.reading.chunks import Chunk, SourceRow
from pipelines.feeds.reading.readers import chunks_apart, reader_of
from pipelines.feeds.terms.columns import BuilderContext, cents

OF_ITSELF: tuple[Needs, ...] = ("payload",)
Paid = dict[bool, list[int]]
"""The cents of payments: under True those with a claim, under False the others."""


class SampleFindings(NamedTuple):
    """The findings in a sample, and the known questionnaires.

    * keys: by key, the first line with the key, and the content of its row.
    * place: returns the words for a line.
    """

    paid: Paid
    known: Any
    keys: dict[object, tuple[int, object]]
    place: Callable[[int], str]


def sample_lines(feed: Feed, path: Path, rows: int, known: Any = None) -> Iterator[str]:
    """Yield the first rows line by line: taken or not, each value, each problem. Raises Unreadable.

    known: looks up questionnaires; None if none are known, and then answers are not checked.
    """
    with reader_of(path, path.name, feed) as reader:
        mapper = Mapper(feed, reader.header, reader.name, first_lines=reader.first_lines)
        shown: Counter[str] = Counter()
        paid: Paid = {True: [], False: []}
        width, seen = len(reader.header or ()), SampleFindings(paid, known, {}, reader.place)
        for chunk in chunks_apart(reader, feed.file):
            for line, lines in sorted(_chunk(mapper, chunk, rows - shown.total(), width, seen)):
                yield f"{path.name}: {reader.places.of(line)}: {lines[0]}"
                yield from (f"  {text}" for text in lines[1:])
                shown[re.split("[:,]", lines[0])[0]] += 1
            if shown.total() >= rows:
                break
        counts = ", ".join(f"{number} {what}" for what, number in shown.items())
        first = "row" if shown.total() == 1 else f"{shown.total()} rows"
        yield f"{path.name}: {f'of the first {first} {counts}' if shown else 'no rows'}"
        if paid[True]:
            copaid, others = (f"{Decimal(sum(paid[kind])) / 100:,.2f}" for kind in (True, False))
            are, they = ("is a copayment", "it") if len(paid[True]) == 1 else ("are copayments", "they")
            told = f"{len(paid[True])} of these {are}, {copaid} in all: {they} may take the balance below zero"
            yield f"{path.name}: {told}; without a claim: {len(paid[False])}, {others}"


def _chunk(mapper: Mapper, chunk: Chunk, most: int, width: int, around: SampleFindings) -> list[tuple[int, list[str]]]:
    found = [(row.line, [_bad(mapper, row, width)]) for row in [row for row in chunk.rows if row.fault][:most]]
    good = chunk.good[:most]
    rows, at = [row.cells for row in good], [row.line for row in good]
    taken = mapper.taken(mapper.rows(rows))
    trailer = mapper.feed.file.trailer
    last = mapper.holds(mapper.rows(rows), trailer.when) if trailer else [False] * len(rows)
    left_out = mapper.left_out(mapper.rows(rows))
    wanted = []
    for place, row in enumerate(rows):
        if last[place]:
            said = "trailer"
        elif left_out[place]:
            said = "left out"
        elif not taken[place]:
            said = "not taken"
        elif mapper.feed.file.resources and "resourceType" in row:
            said = f"taken, a whole resource ({row['resourceType']})"
        elif not mapper.feed.file.columns:
            said = f"rejected: not a FHIR resource; this feed takes only {mapper.feed.kind.resource}"
        else:
            wanted.append(place)
            continue
        found.append((at[place], [said]))
    if wanted:
        found += _mapped(mapper, [rows[place] for place in wanted], [at[place] for place in wanted], around)
    return list(islice(sorted(found), most))


def _bad(mapper: Mapper, row: SourceRow, width: int) -> str:
    """Return the outcome of a row that could not be read."""
    trailer = mapper.feed.file.trailer
    if trailer and row.cells and mapper.holds(mapper.rows([row.padded(width)]), trailer.when)[0]:
        return "trailer"  # an import also takes it as the trailer
    if row.is_ragged and mapper.left_out(mapper.rows([row.padded(width)]))[0]:
        return "left out"
    return f"rejected: {row.fault and row.fault.message}"


def _mapped(
    mapper: Mapper, rows: list[Any], lines: list[int], around: SampleFindings
) -> Iterator[tuple[int, list[str]]]:
    columns, faults = mapper.map(mapper.rows(rows))
    width = max(map(len, columns), default=0)
    records = [{name: cells[place] for name, cells in columns.items()} for place in range(len(lines))]
    broken = _broken(mapper.feed, records, faults, around.known)
    said = [str(row) if place in faults else records[place] for place, row in enumerate(rows)]
    again = {} if mapper.feed.kind.grouped else _again(mapper.feed, columns[mapper.feed.kind.key], lines, said, around)
    for place, (line, values) in enumerate(zip(lines, records, strict=True)):
        shown = [f"{name.ljust(width)}  {_shown(cells[place])}" for name, cells in columns.items()]
        wrong = [f"problem in {found.column}: {found.fault.message}" for found in faults.get(place, ())]
        wrong += broken.get(place, [])
        is_other, told = again.get(place, (False, ""))
        wrong += [told] if is_other else []
        if told and not wrong:
            yield line, [told, *shown]
            continue
        if not wrong and mapper.feed.file.kind == "payments":
            around.paid[bool(values.get("claim_id"))].append(cents(values["amount"]) or 0)
        yield line, ["rejected" if wrong else "taken", *shown, *wrong]


def _again(
    feed: Feed, keys: Iterable[object], lines: Sequence[int], said: Sequence[object], around: SampleFindings
) -> dict[int, tuple[bool, str]]:
    """Return, by place, the rows whose key repeats: True if the content differs, and a sentence about it.

    Rows that were shown before cannot be changed: they stay as they were shown.
    """
    of_key: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        if key is not None:
            of_key.setdefault(key, []).append(place)
            around.keys.setdefault(key, (lines[place], said[place]))
    found: dict[int, tuple[bool, str]] = {}
    for key, places in of_key.items():
        line, first = around.keys[key]
        if any(said[place] != first for place in places):
            column = Origins(feed.file, feed.kind).told(feed.kind.key)
            told = f"the key stands more than once, first on {around.place(line)}, with different content"
            found |= dict.fromkeys(places, (True, f"problem in {column}: {told}"))
        else:
            found |= {place: (False, f"skipped: as {around.place(line)}") for place in places if lines[place] != line}
    return found


def _broken(
    feed: Feed, records: Sequence[dict[str, Any]], faults: Mapping[int, Any], known: Any
) -> dict[int, list[str]]:
    """Return the problems that can be found without a target, by the first row of each record. faults: by row.

    The last record of grouped rows is skipped, since more of its rows may follow.
    """
    if feed.file.kind == "answers" and known is None:
        return {}
    groups: dict[object, list[int]] = {}
    for place, values in enumerate(records):
        groups.setdefault(values[feed.kind.key] if feed.kind.grouped else place, []).append(place)
    places = [found for found in groups.values() if not faults.keys() & set(found)]
    whole = [found for found in places if not feed.kind.grouped or found[-1] < len(records) - 1]
    return {found[0]: list(_problems(feed, [records[place] for place in found], known)) for found in whole}


def _problems(feed: Feed, rows: Sequence[dict[str, Any]], known: Any) -> Iterator[str]:
    """Yield the problems of a record."""
    full = [{column.name: None for column in feed.kind.columns} | values for values in rows]
    built = feed.kind.build(rows[0][feed.kind.key], full, BuilderContext(Site(), known, feed.file.numbers))
    origins = Origins(feed.file, feed.kind)
    for found in built.faults:
        yield f"problem in {origins.told(found.column)}: {found.fault.message}"
    if not built.faults:
        needs = OF_ITSELF if known is None else (*OF_ITSELF, "reference")
        for problem in check(RESOURCES[feed.resource], built.body, Site(), needs=needs, lookup=known).problems:
            place = origins.of(problem.expression, built.places) or problem.expression
            yield f"problem in {place}: {problem.message or problem.text}"


def _shown(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, list):
        return "; ".join(_shown(part) for part in cell)
    if isinstance(cell, tuple):
        return " / ".join(_shown(part) for part in cell)
    return str(cell).replace("\n", "\\n")
