"""Read resources by their ids, from the cache or from the store."""

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
from fhir_service.store.bodies import OVERHEAD, BodyCache, Epoch, Reference, SearchKey, StoredVersion, Stretch
from fhir_service.store.dialect import RowQuery
from fhir_service.store.shared_lookups import SharedLookups
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES

T = TypeVar("T")

COLUMNS = ("id", "body", "version", "updated_at")


class ResourceReader:
    """Read resources from the cache, or else from the store.

    together: look-ups of simultaneous requests. one_by_one: the lock of the reader of a stretch; others wait for it.
    """

    def __init__(self, store: Store, bodies: BodyCache) -> None:
        self._store, self.bodies = store, bodies
        self.together = SharedLookups(self.look_up)
        self.one_by_one = threading.Lock()

    def at_hand(self, resource: Resource, resource_id: str) -> StoredVersion | None:
        """Return a resource if it is in memory. Never waits."""
        return self.bodies.get((resource.name, resource_id))

    def look_up(self, references: Collection[Reference]) -> dict[Reference, StoredVersion]:
        """Read resources from the store, by type and id. Return those that exist."""
        by_type: dict[str, list[str]] = defaultdict(list)
        for name, resource_id in references:
            by_type[name].append(resource_id)
        found: dict[Reference, StoredVersion] = {}
        for name, ids in by_type.items():
            fetch = partial(StoreState.fetch, resource=RESOURCES[name], ids=ids)
            fetched = self.at_once(fetch, creates=self._store.lacks(ids), asked=False)
            found.update(((name, each), body) for each, body in fetched.items())
        return found

    @property
    def shared(self) -> bool:
        """True if other processes may write to the store."""
        return self._store.dialect.shared

    @contextmanager
    def state(self, several: bool = True) -> Iterator["StoreState"]:
        """Lend a state of the store, in any thread. several: for more than one statement."""
        epoch = self.bodies.epoch()
        with self._store.read(several, asked=True) as connection:
            yield StoreState(connection, self._store, self.bodies, epoch)

    def at_once(self, work: Callable[["StoreState"], T], creates: bool = True, asked: bool = True) -> T:
        """Return the result of a function that executes one statement, as `Store.look_up` does."""
        epoch = self.bodies.epoch()
        return self._store.look_up(
            lambda connection: work(StoreState(connection, self._store, self.bodies, epoch)), creates, asked
        )

    def read_all(self, references: Collection[Reference]) -> dict[Reference, StoredVersion]:
        """Read resources from the cache and the store. Return those that exist."""
        found = {each: self.bodies.get(each) for each in references}
        there = {each: body for each, body in found.items() if body}
        return there | self.look_up([each for each in references if each not in there])


def reference_to(resource: Resource, resource_id: str) -> Reference:
    """Return type and id of a resource. Raises the 404 of an invalid id."""
    if not is_id(resource_id):
        raise unknown_resource(resource.name, resource_id)
    return resource.name, resource_id


def require_found(found: StoredVersion | None, reference: Reference) -> StoredVersion:
    """Return a found resource. Raises the 404 that names type and id if there is none."""
    if found is None:
        raise unknown_resource(*reference)
    return found


class StoreState:
    """One state of the store. What is read goes into the cache, unless a commit came since the state began."""

    def __init__(self, connection: Connection, store: Store, bodies: BodyCache, epoch: Epoch) -> None:
        self.connection, self.epoch = connection, store.dialect.epoch
        self._dialect, self._lanes, self._bodies, self._epoch = store.dialect, store.lanes, bodies, epoch

    def bodies(self, resource: Resource, ids: Sequence[str]) -> list[StoredVersion]:
        """Return resources that exist, in the order of `ids`."""
        at_hand = {each: self._bodies.get((resource.name, each)) for each in ids}
        if self._bodies.epoch().changes != self._epoch.changes:
            at_hand = dict.fromkeys(ids)  # the cache may be newer than this state
        fetched = self.fetch(resource, [each for each, found in at_hand.items() if found is None])
        return [at_hand[each] or fetched[each] for each in ids]

    def first_bodies(self, resource: Resource, ids: Sequence[str]) -> list[StoredVersion]:
        """Return the first resources of `ids`, as many as fit on a page."""
        found, turns = list[StoredVersion](), self._lanes.page(len(ids))
        for start in range(0, len(ids), page_bytes.AT_ONCE):
            some = ids[start : start + page_bytes.AT_ONCE]
            with turns.hold(len(some)):
                found += self.bodies(resource, some)
            shown = page_bytes.that_fit([len(each.body) for each in found])
            if shown < len(found):
                return found[:shown]
        return found

    def keep_page(self, question: SearchKey, total: int, ids: Sequence[str]) -> None:
        """Keep the answer to a search."""
        self._bodies.keep_page(question, total, ids, self._epoch)

    def keep_stretch(self, part: SearchKey, resource: Resource, total: int, rows: Sequence[tuple[int, str]]) -> None:
        """Keep a part of the answer to a search, with few other rows in the span of its rows' numbers."""
        numbers = BODIES[resource.name].c.seq
        wanted, found, size = {each for _, each in rows}, list[StoredVersion](), OVERHEAD
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

    def fetch(self, resource: Resource, ids: Sequence[str]) -> dict[str, StoredVersion]:
        """Read resources from the store, by id."""
        asked = RowQuery(BODIES[resource.name], "id", ids, columns_of(resource))
        rows = self._dialect.among(self.connection, asked)
        fetched = {found.id: found for found in (found_of(*row) for row in rows)}
        for resource_id, found in fetched.items():
            self._bodies.keep((resource.name, resource_id), found, self._epoch)
        return fetched


def columns_of(resource: Resource) -> tuple[str, ...]:
    """Return the columns for `found_of`."""
    return (*COLUMNS, resource.of_patient.column) if resource.of_patient else COLUMNS


def found_of(resource_id: str, body: str, version: int, updated_at: datetime, *patients: str | None) -> StoredVersion:
    """Return the resource of a row."""
    return StoredVersion(resource_id, body.encode(), version, updated_at, tuple(filter(None, patients)))
