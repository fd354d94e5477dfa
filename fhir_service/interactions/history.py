"""History: every version of a resource, or of a type since an instant; newest first, paged like a search."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Subquery, func, literal, select, union_all

from fhir_service.interactions import search
from fhir_service.interactions.conditions import bad
from fhir_service.interface.datatypes import is_id
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.times import parse_instant
from fhir_service.interface.vocabulary import Resource
from fhir_service.store import page_bytes
from fhir_service.store.page_bytes import body_if_it_fits, end_of
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES, HISTORY

REACH = timedelta(minutes=5)
"""Time before `_since` that a history includes: a service's clock may be behind by that much, and no change is missed.
"""
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a resource: its body with markers, its number, its time."""

    id: str
    version: int
    updated_at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page of versions, how many there are in all, and the offset of the page behind it."""

    path: str
    sent: list[tuple[str, str]]
    count: int
    offset: int
    total: int
    end: int
    versions: list[Version]

    def patients(self, resource: Resource) -> tuple[str, ...]:
        """The ids of the patients on the page."""
        found = (resource.patient(parse_json(version.body)) for version in self.versions)
        return tuple(dict.fromkeys(filter(None, found)))


def parse(resource: Resource, pairs: search.Pairs, count: int, most: int) -> tuple[Page, datetime | None]:
    """The page that is asked for, still empty, and `_since`. Raises bad requests."""
    since, sent, control = None, [], []
    for name, value in pairs:
        if name == "_since":
            if since is not None:
                raise bad(name, "the parameter is given twice")
            try:
                since = parse_instant(value.replace(" ", "+"))
            except ValueError:
                raise bad(name, "an instant with an offset is expected") from None
            sent.append((name, value))
        else:
            control.append((name, value))
    size, offset = search.paging(resource, control, count, most)
    return Page(f"/{resource.name}/_history", sent, size, offset, 0, offset, []), since


def run(store: Store, resource: Resource, page: Page, since: datetime | None, resource_id: str | None = None) -> Page:
    """The versions of a type, or of one resource. Raises the 404 of an unknown one."""
    versions = versions_of(resource, resource_id)
    where = [versions.c.updated_at >= _reached(since)] if since else []
    if resource_id is not None and not is_id(resource_id):
        raise unknown_resource(resource.name, resource_id)
    with store.read(asked=True) as connection:
        if resource_id is not None:
            _known(connection, resource, resource_id)
        total = connection.execute(select(func.count()).select_from(versions).where(*where)).scalar_one()
        wanted = page.count and page.offset < total
        turn = nullcontext() if store.dialect.shared else store.lanes.history(resource_id is not None).hold(1)
        with turn:
            rows: Sequence[Any] = connection.execute(_of_page(page, versions, where)).all() if wanted else []
    found = [Version(*row) for row in rows if row.body is not None]
    end = end_of(page.offset, page.count, len(found), is_cut=len(found) < len(rows))
    path = page.path if resource_id is None else f"/{resource.name}/{resource_id}/_history"
    return replace(page, path=path, total=total, end=end, versions=found)


def _reached(since: datetime) -> datetime:
    return since - REACH if since - _FIRST > REACH else _FIRST


def _known(connection: Any, resource: Resource, resource_id: str) -> None:
    table = BODIES[resource.name]
    if connection.execute(select(table.c.seq).where(table.c.id == resource_id)).first() is None:
        raise unknown_resource(resource.name, resource_id)


def versions_of(resource: Resource, resource_id: str | None = None) -> Subquery:
    """Every version of a type or of one resource, with who stored it: those in force, and those before."""
    table, prefix = BODIES[resource.name], f"{resource.name}/"
    now: Select[Any] = select(table.c.id, table.c.version, table.c.updated_at, table.c.body, table.c.client)
    old_id = func.substr(HISTORY.c.reference, literal(len(prefix) + 1)).label("id")
    old: Select[Any] = select(old_id, HISTORY.c.version, HISTORY.c.updated_at, HISTORY.c.body, HISTORY.c.client)
    if resource_id is None:
        old = old.where(HISTORY.c.reference.startswith(prefix, autoescape=True))
    else:
        now, old = now.where(table.c.id == resource_id), old.where(HISTORY.c.reference == prefix + resource_id)
    return union_all(now, old).subquery()


def _of_page(page: Page, versions: Subquery, where: list[ColumnElement[bool]]) -> Select[Any]:
    """Select the versions of a page in order, the bodies of as many as fit."""
    columns = versions.c.id, versions.c.version, versions.c.updated_at, versions.c.body
    on_it = select(*columns).where(*where).order_by(*_newest_first(versions)).limit(page.count).offset(page.offset)
    rows = on_it.subquery()
    order = _newest_first(rows)
    return select(
        rows.c.id, rows.c.version, rows.c.updated_at, body_if_it_fits(rows.c.body, order, page_bytes.MOST)
    ).order_by(*order)


def _newest_first(rows: Subquery) -> list[ColumnElement[Any]]:
    return [rows.c.updated_at.desc(), rows.c.id, rows.c.version.desc()]
