"""History: every version of a resource, or of a type since an instant; newest first, paged like a search."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Subquery, func, literal, select, tuple_, union_all

from fhir_service.interactions.conditions import bad
from fhir_service.interactions.paging import Page, Pairs, paging
from fhir_service.interactions.read import found_of
from fhir_service.interface.datatypes import is_id
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.times import parse_instant
from fhir_service.interface.vocabulary import Resource
from fhir_service.store import page_bytes
from fhir_service.store.bodies import StoredVersion
from fhir_service.store.page_bytes import body_if_it_fits, end_of
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES, HISTORY

REACH = timedelta(minutes=5)
"""A history begins so much before `_since`: no change is missed if the clock of another service is behind by that much.
"""
_FIRST = datetime.min.replace(tzinfo=UTC)


def parse(resource: Resource, pairs: Pairs, count: int, most: int) -> tuple[Page, datetime | None]:
    """Return the page that is asked for, without resources yet, and `_since`. Raises the 400 of bad parameters."""
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
    size, offset = paging(resource, control, count, most)
    return Page(f"/{resource.name}/_history", sent, size, offset, 0, offset, []), since


def run(store: Store, resource: Resource, page: Page, since: datetime | None, resource_id: str | None = None) -> Page:
    """Return a page of the versions of a type, or of one resource. Raises the 404 of an unknown one."""
    versions = versions_of(resource, None if resource_id is None else [resource_id])
    where = [versions.c.updated_at >= _reached(since)] if since else []
    if resource_id is not None and not is_id(resource_id):
        raise unknown_resource(resource.name, resource_id)
    with store.read(asked=True) as connection:
        known = select(BODIES[resource.name].c.seq).where(BODIES[resource.name].c.id == resource_id)
        if resource_id is not None and connection.execute(known).first() is None:
            raise unknown_resource(resource.name, resource_id)
        total = connection.execute(select(func.count()).select_from(versions).where(*where)).scalar_one()
        wanted = page.count and page.offset < total
        turn = nullcontext() if store.dialect.shared else store.lanes.history(resource_id is not None).hold(1)
        with turn:
            keys = connection.execute(_keys(page, versions, where)).all() if wanted else []
            found = _first(connection, resource, [(each.id, each.version) for each in keys])
    end = end_of(page.offset, page.count, len(found), is_cut=len(found) < len(keys))
    path = page.path if resource_id is None else f"/{resource.name}/{resource_id}/_history"
    return replace(page, path=path, total=total, end=end, found=found)


def _reached(since: datetime) -> datetime:
    return since - REACH if since - _FIRST > REACH else _FIRST


def versions_of(resource: Resource, ids: Collection[str] | None = None) -> Subquery:
    """Every version of a type or of some resources, with who stored it: those in force, and those before."""
    table, prefix = BODIES[resource.name], f"{resource.name}/"
    now: Select[Any] = select(table.c.id, table.c.version, table.c.updated_at, table.c.body, table.c.client)
    old_id = func.substr(HISTORY.c.reference, literal(len(prefix) + 1)).label("id")
    old: Select[Any] = select(old_id, HISTORY.c.version, HISTORY.c.updated_at, HISTORY.c.body, HISTORY.c.client)
    if ids is None:
        old = old.where(HISTORY.c.reference.startswith(prefix, autoescape=True))
    else:
        now = now.where(table.c.id.in_(ids))
        old = old.where(HISTORY.c.reference.in_([prefix + each for each in ids]))
    return union_all(now, old).subquery()


def _keys(page: Page, versions: Subquery, where: list[ColumnElement[bool]]) -> Select[Any]:
    """Select the keys of the versions on a page, in order. Sorting whole rows would move all bodies."""
    keys = select(versions.c.id, versions.c.version).where(*where).order_by(*_newest_first(versions))
    return keys.limit(page.count).offset(page.offset)


def _first(connection: Connection, resource: Resource, keys: Sequence[tuple[str, int]]) -> list[StoredVersion]:
    """Return the first versions of some, as many as fit on a page."""
    found = list[StoredVersion]()
    for start in range(0, len(keys), page_bytes.AT_ONCE):
        some = keys[start : start + page_bytes.AT_ONCE]
        versions = versions_of(resource, {resource_id for resource_id, _ in some})
        order = _newest_first(versions)
        body = body_if_it_fits(versions.c.body, order, page_bytes.MOST)
        rows = select(versions.c.id, body, versions.c.version, versions.c.updated_at).order_by(*order)
        read = connection.execute(rows.where(tuple_(versions.c.id, versions.c.version).in_(some))).all()
        found += [found_of(*row, resource.patient(parse_json(row.body))) for row in read if row.body is not None]
        shown = page_bytes.that_fit([len(one.body) for one in found])
        if shown < start + len(some):
            return found[:shown]
    return found


def _newest_first(rows: Subquery) -> list[ColumnElement[Any]]:
    return [rows.c.updated_at.desc(), rows.c.id, rows.c.version.desc()]
