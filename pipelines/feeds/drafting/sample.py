"""Show the first rows of an export as a feed reads them, for the person who writes the feed."""

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Needs, check
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.mapping.origins import Origins
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.reading.readers import reader_of
from pipelines.feeds.terms.columns import cents
from pipelines.feeds.terms.record import Around

OF_ITSELF: tuple[Needs, ...] = ("payload",)
Paid = dict[bool, list[int]]
"""The cents of payments with a claim, and of those without."""


def sample_lines(feed: Feed, path: Path, rows: int) -> Iterator[str]:
    """The first rows, line by line: taken or not, each value, each problem. Raises Unreadable."""
    with reader_of(path, path.name, feed) as reader:
        mapper = Mapper(feed, reader.header, path.name)
        shown: Counter[str] = Counter()
        paid: Paid = {True: [], False: []}
        width = len(reader.header or ())
        for chunk in reader.chunks():
            for line, lines in sorted(_chunk(mapper, chunk, rows - shown.total(), width, paid)):
                yield f"{path.name}: line {line}: {lines[0]}"
                yield from (f"  {text}" for text in lines[1:])
                shown[re.split("[:,]", lines[0])[0]] += 1
            if shown.total() >= rows:
                break
        counts = ", ".join(f"{number} {what}" for what, number in shown.items())
        yield f"{path.name}: {f'of the first {shown.total()} rows {counts}' if shown else 'no rows'}"
        if paid[True]:
            copaid, others = (f"{Decimal(sum(paid[kind])) / 100:,.2f}" for kind in (True, False))
            told = f"{len(paid[True])} of these are copayments, {copaid} in all: they are not held against the balance"
            yield f"{path.name}: {told}; without a claim: {len(paid[False])}, {others}"


def _chunk(mapper: Mapper, chunk: Chunk, most: int, width: int, paid: Paid) -> list[tuple[int, list[str]]]:
    found = [
        (row.line, ["trailer" if _ends(mapper, row.cells, width) else f"rejected: {row.fault.message}"])
        for row in chunk.bad[:most]
    ]
    rows = chunk.rows[:most]
    taken = mapper.taken(mapper.rows(rows)) if rows else None
    trailer = mapper.feed.file.trailer
    last = mapper.holds(mapper.rows(rows), trailer.when) if rows and trailer else [False] * len(rows)
    wanted = []
    for place, row in enumerate(rows):
        if last[place]:
            found.append((chunk.line[place], ["trailer"]))
        elif taken is not None and not taken[place]:
            found.append((chunk.line[place], ["not taken"]))
        elif mapper.feed.file.resources and "resourceType" in row:
            found.append((chunk.line[place], [f"taken, a whole resource ({row['resourceType']})"]))
        elif not mapper.feed.file.columns:
            said = f"rejected: no FHIR resource: this feed takes {mapper.feed.kind.resource}"
            found.append((chunk.line[place], [said]))
        else:
            wanted.append(place)
    if wanted:
        found += _mapped(mapper, [rows[place] for place in wanted], [chunk.line[place] for place in wanted], paid)
    return list(islice(sorted(found), most))


def _ends(mapper: Mapper, cells: list[str] | None, width: int) -> bool:
    """True if a row of too few or too many fields is the trailer, as an import takes it."""
    trailer = mapper.feed.file.trailer
    if not cells or trailer is None:
        return False
    padded = cells + [""] * (width - len(cells))
    return bool(mapper.holds(mapper.rows([padded]), trailer.when)[0])


def _mapped(mapper: Mapper, rows: list[Any], lines: list[int], paid: Paid) -> Iterator[tuple[int, list[str]]]:
    columns, faults = mapper.map(mapper.rows(rows))
    width = max(map(len, columns), default=0)
    for place, line in enumerate(lines):
        values = {name: cells[place] for name, cells in columns.items()}
        shown = [f"{name.ljust(width)}  {_shown(cells[place])}" for name, cells in columns.items()]
        wrong = [f"problem in {found.column}: {found.fault.message}" for found in faults.get(place, ())]
        wrong = wrong or list(_broken(mapper.feed, values))
        if not wrong and mapper.feed.file.kind == "payments":
            paid[bool(values.get("claim_id"))].append(cents(values["amount"]) or 0)
        yield line, ["rejected" if wrong else "taken", *shown, *wrong]


def _broken(feed: Feed, values: dict[str, Any]) -> Iterator[str]:
    """Return the problems of a record that needs no questionnaire: only a target knows questionnaires."""
    if feed.kind.grouped or feed.file.kind == "answers":
        return
    row = {column.name: None for column in feed.kind.columns} | values
    built = feed.kind.build(values[feed.kind.key], [row], Around(Site(), None, "2000-01-01"))
    origins = Origins(feed.file, feed.kind)
    for found in built.faults:
        yield f"problem in {origins.labels.get(found.column) or found.column}: {found.fault.message}"
    if not built.faults:
        for problem in check(RESOURCES[feed.resource], built.body, Site(), needs=OF_ITSELF).problems:
            place = origins.of(problem.expression) or problem.expression
            yield f"problem in {place}: {problem.message or problem.text}"


def _shown(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, list):
        return "; ".join(_shown(part) for part in cell)
    if isinstance(cell, tuple):
        return " / ".join(_shown(part) for part in cell)
    return str(cell).replace("\n", "\\n")
