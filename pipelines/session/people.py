"""People whom a feed names by an identifier of its source: look them up at the target, in place of a crosswalk file.

The values are read from the file first, so that one search asks for many. A person who is found stays known for the
rest of the command. One who is not found, or found twice, is a fault of the row.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.client.identifiers import VALUES_A_SEARCH, search_token, values_in_use, values_of
from pipelines.client.replies import NoResult, NotDone, NotSent, RequestRefused, TargetUnusable, UnknownOutcome
from pipelines.client.shapes import objects_in
from pipelines.client.threads import threads
from pipelines.client.whole import whole_search
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.texts import composed_text, folded_text, has_unseen
from pipelines.feeds.terms.values import Crosswalk
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.session.people_named import people_named

NOT_ONE = "TARGET-07"
LONGEST_SEARCH = 4_000
"""The number of characters in the values that one search asks for."""
LONGEST_VALUE = 200
NO_IDENTIFIER = ValueFault(
    NOT_ONE, "not asked of the target: over 200 characters, or with a line break or unseen sign within"
)
REFUSED_VALUE = ValueFault(NOT_ONE, "the target refuses to search for this identifier: look at the value")
MERGED = ValueFault(NOT_ONE, "the record with this identifier was merged or is inactive at the target")
USUAL_VALUE = "0"
"""A plain value, searched to tell a target that refuses one value from a target that refuses all."""
AT_ONCE = 4
Entry = str | ValueFault


class People:
    """Patients and practitioners of one target, by identifier. searched: types that can be searched by it."""

    def __init__(self, client: FhirClient, searched: frozenset[str]) -> None:
        self._client, self._searched = client, searched
        self._known: dict[Crosswalk, dict[str, str]] = defaultdict(dict)

    def tables(self, received: ReceivedFile, feed: Feed) -> dict[Crosswalk, Mapping[str, Entry]]:
        """Return, by crosswalk, the reference of each person in the file. Raises `UnreadableFile`, `TargetUnusable`."""
        walks = feed.by_identifier
        if lacking := next((walk for walk in walks if walk.type not in self._searched), None):
            raise UnreadableFile(
                f"{received.file_name}: {feed.path.name}: the target does not say that a {lacking.type} can be"
                " searched by identifier: name its ids by a file or a database"
            )
        return (
            {walk: self._found(walk, values) for walk, values in people_named(received, feed).items()} if walks else {}
        )

    def _found(self, walk: Crosswalk, values: set[str]) -> dict[str, Entry]:
        known = self._known[walk]
        found: dict[str, Entry] = {value: known[value] for value in values & known.keys()}
        new = values.difference(known)
        found |= {value: NO_IDENTIFIER for value in new if not _can_be_asked(value)}
        with threads(AT_ONCE, "people") as pool:
            for some in pool.map(partial(self._search, walk), _parts(walk, sorted(new.difference(found)))):
                found |= some
        known.update({value: entry for value, entry in found.items() if isinstance(entry, str)})
        return found

    def _search(self, walk: Crosswalk, values: Sequence[str]) -> dict[str, Entry]:
        """Return by value the person with it, or a fault. If the target refuses a search for many, ask one by one."""
        try:
            bodies = self._named(walk, values)
        except (RequestRefused, UnknownOutcome) as error:
            if not _is_refused(error):
                raise _unsearched(walk, error) from None
            if len(values) > 1:
                return {value: entry for each in values for value, entry in self._search(walk, [each]).items()}
            try:
                self._named(walk, [USUAL_VALUE])
            except NoResult:
                raise _unsearched(walk, error) from None
            return {values[0]: REFUSED_VALUE}
        except (NotSent, NotDone) as error:
            raise _unsearched(walk, error) from None
        return _by_value(walk, values, bodies)

    def _named(self, walk: Crosswalk, values: Sequence[str]) -> list[dict[str, Any]]:
        return list(whole_search(self._client.named(str(walk.type), walk.system, values), str(walk.type)))


def _can_be_asked(value: str) -> bool:
    """True if a value may be an identifier. A misread cell may contain other people's rows, which must not go into an
    address.
    """
    return len(value) <= LONGEST_VALUE and not has_unseen(value)


def _parts(walk: Crosswalk, values: Sequence[str]) -> Iterator[list[str]]:
    """Yield the values for each search."""
    part, size = list[str](), 0
    for value in values:
        more = len(search_token(walk.system, value))
        if part and (len(part) == VALUES_A_SEARCH or size + more > LONGEST_SEARCH):
            yield part
            part, size = [], 0
        part.append(value)
        size += more
    if part:
        yield part


def _is_refused(error: RequestRefused | UnknownOutcome) -> bool:
    """True if a search was refused for its content, also by a server or gateway that does not say so in FHIR."""
    return isinstance(error, RequestRefused) or str(error) in ("HTTP 400", "HTTP 414", "HTTP 431")


def _unsearched(walk: Crosswalk, error: Exception) -> TargetUnusable:
    return TargetUnusable(f"{walk.type} could not be searched by identifier ({error})")


def _by_value(walk: Crosswalk, values: Sequence[str], bodies: Iterable[Mapping[str, Any]]) -> dict[str, Entry]:
    """Return the person with each value; a fault if there are several. Raises `TargetUnusable` if the target returned
    resources that were not asked for.
    """
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    today = datetime.now(UTC).date().isoformat()
    asked = {value.casefold() for value in values}
    for body in bodies:
        shown = _read(values_of(walk.system, body))
        if asked.isdisjoint(value.casefold() for value in shown):
            raise TargetUnusable(f"the target does not search a {walk.type} by identifier: it gave others")
        for value in _read(values_in_use(walk.system, body, today)).intersection(values):
            found[value][str(body["id"])] = _is_merged(body)
    return {value: _entry(walk, ids) for value, ids in found.items()}


def _read(values: Iterable[Any]) -> set[str]:
    """Return the values of identifiers, normalized like those in a file."""
    return {folded_text(composed_text(value.strip())) for value in values if isinstance(value, str)}


def _entry(walk: Crosswalk, ids: Mapping[str, bool]) -> Entry:
    """Return the one person of these ids who is neither merged nor inactive, else the fault."""
    good = [name for name, is_merged in ids.items() if not is_merged]
    if len(good) == 1:
        return f"{walk.type}/{good[0]}"
    return ValueFault(NOT_ONE, walk.found_twice) if good else MERGED


def _is_merged(body: Mapping[str, Any]) -> bool:
    types = [each.get("type") for each in objects_in(body.get("link"))]
    return body.get("active") is False or "replaced-by" in types
