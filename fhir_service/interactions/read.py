"""Read: a resource by its id."""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, select

from fhir_service.interface.datatypes import is_id
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Resource
from fhir_service.store import page_bytes
from fhir_service.store.bodies import OVERHEAD, Bodies, Epoch, Found, Question, Reference, Stretch
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES
from fhir_service.store.together import Together

T = TypeVar("T")

COLUMNS = ("id", "body", "version", "updated_at")


class Reader:
    """Reads resources: from memory where they are at hand, else from the store.

    together: look-ups of requests that come at once. one_by_one: held while a stretch is read, for which several wait.
    """

    def __init__(self, store: Store, bodies: Bodies) -> None:
        self._store, self._bodies = store, bodies
        self.together = Together(self.look_up)
        self.one_by_one = threading.Lock()

    def at_hand(self, resource: Resource, resource_id: str) -> Found | None:
        """Return a resource that is in memory. Does not wait."""
        return self._bodies.get((resource.name, resource_id))

    def look_up(self, references: Collection[Reference]) -> dict[Reference, Found]:
        """Read resources from the store, by type and id: those that are there."""
        by_type: dict[str, list[str]] = defaultdict(list)
        for name, resource_id in references:
            by_type[name].append(resource_id)
        found: dict[Reference, Found] = {}
        for name, ids in by_type.items():
            fetch = partial(self._fetch, self._bodies.epoch(), RESOURCES[name], ids)
            fetched = self._store.look_up(fetch, creates=self._store.lacks(ids))
            found.update(((name, each), body) for each, body in fetched.items())
        return found

    def _fetch(self, epoch: Epoch, resource: Resource, ids: Sequence[str], connection: Connection) -> dict[str, Found]:
        return State(connection, self._store, self._bodies, epoch).fetch(resource, ids)

    def page_at_hand(self, question: Question) -> tuple[int, list[Found]] | None:
        """Return total and page of a search whose answer is in memory. Does not wait."""
        return self._bodies.page(question)

    @property
    def shared(self) -> bool:
        """True if other processes may write to the store."""
        return self._store.dialect.shared

    @property
    def keeps_stretches(self) -> bool:
        return self._bodies.takes_stretches

    def lacks_stretch(self, part: Question) -> bool:
        """True if a stretch is not kept."""
        return not self._bodies.has_stretch(part)

    @contextmanager
    def state(self, several: bool = True) -> Iterator["State"]:
        """A state of the store, for one statement or for several, from any thread."""
        epoch = self._bodies.epoch()
        with self._store.read(several, asked=True) as connection:
            yield State(connection, self._store, self._bodies, epoch)

    def at_once(self, work: Callable[["State"], T]) -> T:
        """Return what a function finds by one statement of a database server. It is called again if that was lost."""
        epoch = self._bodies.epoch()
        return self._store.look_up(
            lambda connection: work(State(connection, self._store, self._bodies, epoch)), asked=True
        )

    def read_all(self, references: Collection[Reference]) -> dict[Reference, Found]:
        """Read resources from wherever they are: those that there are."""
        found = {each: self._bodies.get(each) for each in references}
        there = {each: body for each, body in found.items() if body}
        return there | self.look_up([each for each in references if each not in there])


def referred(resource: Resource, resource_id: str) -> Reference:
    """Return type and id of a resource. Raises the 404 of what can be no id."""
    if not is_id(resource_id):
        raise unknown_resource(resource.name, resource_id)
    return resource.name, resource_id


def there(found: Found | None, reference: Reference) -> Found:
    """Return what was found. Raises the 404 that names type and id."""
    if found is None:
        raise unknown_resource(*reference)
    return found


class State:
    """The store as of one moment. What is read of it is kept, unless something was changed since it began."""

    def __init__(self, connection: Connection, store: Store, bodies: Bodies, epoch: Epoch) -> None:
        self.connection, self.epoch = connection, store.dialect.epoch
        self._dialect, self._lanes, self._bodies, self._epoch = store.dialect, store.lanes, bodies, epoch

    def bodies(self, resource: Resource, ids: Sequence[str]) -> list[Found]:
        """Return resources that are there, in the order of their ids."""
        at_hand = {each: self._bodies.get((resource.name, each)) for each in ids}
        if self._bodies.epoch().changes != self._epoch.changes:
            at_hand = dict.fromkeys(ids)  # what is in memory may be newer than this state
        fetched = self.fetch(resource, [each for each, found in at_hand.items() if found is None])
        return [at_hand[each] or fetched[each] for each in ids]

    def first_bodies(self, resource: Resource, ids: Sequence[str]) -> list[Found]:
        """Return the first of some resources, as many as fit on a page."""
        found, turns = list[Found](), self._lanes.page(len(ids))
        for start in range(0, len(ids), page_bytes.AT_ONCE):
            some = ids[start : start + page_bytes.AT_ONCE]
            with turns.hold(len(some)):
                found += self.bodies(resource, some)
            shown = page_bytes.that_fit([len(each.body) for each in found])
            if shown < len(found):
                return found[:shown]
        return found

    def keep_page(self, question: Question, total: int, ids: Sequence[str]) -> None:
        """Keep the answer to a search."""
        self._bodies.keep_page(question, total, ids, self._epoch)

    def keep_stretch(self, part: Question, resource: Resource, total: int, rows: Sequence[tuple[int, str]]) -> None:
        """Keep a part of the answer to a search, with few other rows in the span of its rows' numbers."""
        numbers = BODIES[resource.name].c.seq
        wanted, found, size = {each for _, each in rows}, list[Found](), OVERHEAD
        columns = [numbers.table.c[name] for name in columns_of(resource)]
        start, end = 0, page_bytes.AT_ONCE
        while some := rows[start:end]:
            span = select(*columns).where(numbers.between(some[0][0], some[-1][0])).order_by(numbers)
            more = [found_of(*row) for row in self.connection.execute(span) if row.id in wanted]
            larger = size + sum(one.size for one in more)
            if larger > self._bodies.of_a_stretch:
                break
            found += more
            size = larger
            start, end = end, end + page_bytes.AT_ONCE * self._bodies.of_a_stretch // size  # as many as may fit
        self._bodies.keep_stretch(part, Stretch(total, found, size), self._epoch)

    def fetch(self, resource: Resource, ids: Sequence[str]) -> dict[str, Found]:
        """Read resources from the store, by id."""
        rows = self._dialect.among(self.connection, BODIES[resource.name], "id", ids, columns_of(resource))
        fetched = {found.id: found for found in (found_of(*row) for row in rows)}
        for resource_id, found in fetched.items():
            self._bodies.keep((resource.name, resource_id), found, self._epoch)
        return fetched


def columns_of(resource: Resource) -> tuple[str, ...]:
    """Return the columns of what is found, as `found_of` takes them."""
    return (*COLUMNS, resource.of_patient.column) if resource.of_patient else COLUMNS


def found_of(resource_id: str, body: str, version: int, updated_at: datetime, *patients: str | None) -> Found:
    """Return a resource as its row has it."""
    return Found(resource_id, body.encode(), version, updated_at, tuple(filter(None, patients)))
