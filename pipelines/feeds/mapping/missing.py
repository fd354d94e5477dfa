"""Values without an entry in crosswalks, found by mapping rows again and recording failed look-ups."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import RowReader
from pipelines.feeds.terms.schema import values_of, walk_all
from pipelines.feeds.terms.values import Crosswalk

MOST_ROWS = 20_000


class ListeningCrosswalk(dict[str, str]):
    """A crosswalk that records the keys that it was asked for and does not have."""

    def __init__(self, table: Mapping[str, str]) -> None:
        super().__init__(table)
        self.missed: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self.missed.add(key)
        return super().get(key, default)


def missing_values(feed: Feed, reader: RowReader, lines: set[int]) -> dict[Crosswalk, Counter[str]]:
    """Return by crosswalk the values without an entry, and how many of the rows on these lines have each."""
    tables = {walk: ListeningCrosswalk(table) for walk, table in feed.read_crosswalks().items()}
    mapper = Mapper(feed, reader.header, reader.name, tables)
    found: dict[Crosswalk, Counter[str]] = {walk: Counter() for walk in tables}
    for row in _rows(reader, lines):
        for table in tables.values():
            table.missed.clear()
        mapper.map(mapper.rows([row]))
        for walk, table in tables.items():
            found[walk].update(table.missed)
    return found


def _rows(reader: RowReader, lines: set[int]) -> Iterator[Any]:
    """Yield the rows on these lines, up to a bound."""
    left = MOST_ROWS
    for chunk in reader.chunks():
        for row in chunk.good:
            if row.line in lines and left:
                left -= 1
                yield row.cells


def types_of(feed: Feed, walk: Crosswalk) -> tuple[str, ...]:
    """Return the types of resources whose ids a crosswalk gives; empty if it gives no ids of resources."""
    found: dict[str, None] = {}
    for place, value in values_of(feed.file):
        column = place.rpartition(".")[2]
        for part in walk_all(value):
            if part.crosswalk == walk:
                names = [column, *(f"comment_{name}" for name, inner in (value.each or {}).items() if inner == part)]
                names += [f"comment_{column}"] if place.startswith("comments.") else []
                shapes = (feed.kind.by_name[name].shape for name in names if name in feed.kind.by_name)
                found.update((name, None) for shape in shapes if isinstance(shape, tuple) for name in shape)
    return tuple(found)
