"""People whom a feed names by an identifier of its source, looked up at the target: what serves as their crosswalk.

The values are read from the file first, so that one search asks for many. Who is found is known for the rest of the
command. Who is not found, or found twice, is a fault of the row.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.client.identifiers import search_token, values_of
from pipelines.client.replies import NotDone, NotSent, Refused, TargetUnusable, Unknown, resources_of
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.mapping.missing import Listening
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.reading.readers import reader_of
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.schema import Crosswalk
from pipelines.feeds.terms.texts import composed, folded
from pipelines.home.batch import Received, Unreadable

NOT_ONE = "TARGET-07"
VALUES_A_SEARCH = 25
"""Values that one search asks for: longer addresses are refused by some servers."""
AT_ONCE = 4
UNREADABLE = (NotSent, NotDone, Refused, Unknown)
Entry = str | Fault


class People:
    """Patients and practitioners of one target, by identifier. searched: types that can be searched by it."""

    def __init__(self, client: FhirClient, searched: frozenset[str]) -> None:
        self._client, self._searched = client, searched
        self._known: dict[Crosswalk, dict[str, str]] = defaultdict(dict)

    def tables(self, received: Received, feed: Feed) -> dict[Crosswalk, Mapping[str, Entry]]:
        """By crosswalk, the reference of each person whom the file names. Raises `Unreadable`, `TargetUnusable`."""
        walks = feed.by_identifier
        if lacking := next((walk for walk in walks if walk.type not in self._searched), None):
            raise Unreadable(
                f"{received.file_name}: {feed.path.name}: the target does not say that a {lacking.type} can be"
                " searched by identifier: name its ids by a file or a database"
            )
        return {walk: self._found(walk, values) for walk, values in _named(received, feed).items()} if walks else {}

    def _found(self, walk: Crosswalk, values: set[str]) -> dict[str, Entry]:
        known = self._known[walk]
        found: dict[str, Entry] = {value: known[value] for value in values & known.keys()}
        new = sorted(values - known.keys())
        parts = [new[at : at + VALUES_A_SEARCH] for at in range(0, len(new), VALUES_A_SEARCH)]
        with ThreadPoolExecutor(AT_ONCE, "people") as pool:
            for some in pool.map(partial(self._search, walk), parts):
                for value, ids in some.items():
                    found[value] = f"{walk.type}/{ids[0]}" if len(ids) == 1 else Fault(NOT_ONE, walk.found_twice)
        known.update({value: entry for value, entry in found.items() if isinstance(entry, str)})
        return found

    def _search(self, walk: Crosswalk, values: Sequence[str]) -> dict[str, list[str]]:
        """By value, the ids of those who have it; one by one where the target refuses to look for many."""
        path = f"/{walk.type}?_count=100&identifier={','.join(search_token(walk.system, value) for value in values)}"
        try:
            bodies = [body for page in self._client.pages_from(path) for body in resources_of(page, str(walk.type))]
        except UNREADABLE as error:
            if isinstance(error, Refused) and len(values) > 1:
                return {value: ids for each in values for value, ids in self._search(walk, [each]).items()}
            raise TargetUnusable(f"{walk.type} could not be searched by identifier ({error})") from None
        return _by_value(walk, values, bodies)


def _by_value(walk: Crosswalk, values: Sequence[str], bodies: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Who has which value, each once. Raises `TargetUnusable` where the target gave what it was not asked for."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    asked = {value.casefold() for value in values}
    for body in bodies:
        shown = {folded(composed(value.strip())) for value in values_of(walk.system, body) if isinstance(value, str)}
        if asked.isdisjoint(value.casefold() for value in shown):
            raise TargetUnusable(f"the target does not search a {walk.type} by identifier: it gave others")
        for value in shown.intersection(values):
            found[value][str(body["id"])] = None
    return {value: [*ids] for value, ids in found.items()}


def _named(received: Received, feed: Feed) -> dict[Crosswalk, set[str]]:
    """By crosswalk, the values that it will be asked for, from a first reading of the file."""
    asked = {walk: Listening({}) for walk in feed.by_identifier}
    with reader_of(received.path_in_batch, received.file_name, feed) as reader:
        mapper = Mapper(feed, reader.header, received.file_name, first_lines=reader.first_lines, people=asked)
        for chunk in reader.chunks():
            rows = [*_rows(feed, chunk)]
            taken = mapper.taken(mapper.rows(rows))
            mapper.map(mapper.rows(rows if taken is None else [rows[at] for at in taken.nonzero()[0]]))
    return {walk: table.missed for walk, table in asked.items()}


def _rows(feed: Feed, chunk: Chunk) -> Iterator[Any]:
    """The rows that will be mapped: those that may be misread too, and no whole resources."""
    yield from (row for row in chunk.rows if not (feed.file.resources and "resourceType" in row))
    yield from (row.cells for row in chunk.bad if row.is_doubtful)
