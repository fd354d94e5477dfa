"""Check the bodies of a store, a page at a time: their columns, side tables and references."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Table, select, tuple_

from fhir_service.admin.findings import MOST, Finding, Found
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources.questionnaire_response import AUTOMATION
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Resource
from fhir_service.reference import claims
from fhir_service.reference.examining import PATIENT_ELEMENTS
from fhir_service.reference.reading import Flaw
from fhir_service.reference.references import patient_of, targets
from fhir_service.store.tables import BODIES, CHARGE, RECORD, index_values, side_rows, side_tables

PAGE = 2000


def bodies_agree(connection: Connection, site: Site) -> Found:
    """Check that columns and side tables agree with each stored body, and that its references are stored."""
    for name, resource in RESOURCES.items():
        yield from _orphans(connection, resource)
        # In a damaged store several resources may have the same number.
        for rows in _pages(connection, BODIES[name], "seq", "id"):
            sides = _stored_sides(connection, resource, [row.seq for row in rows])
            named: dict[str, list[str]] = {}
            for row in rows:
                where = f"{name}/{row.id}"
                stored = _parsed(row.body)
                if stored is None or (stored.get("resourceType"), stored.get("id")) != (name, row.id):
                    yield Finding("body", where, "the body cannot be read, or is that of another resource")
                    continue
                yield from _disagreements(resource, row, stored, where, sides)
                named[where] = list(targets(stored, site))
            yield from _unresolved(connection, named, notices="create" not in resource.interactions)


def _disagreements(
    resource: Resource, row: Row[Any], stored: dict[str, Any], where: str, sides: dict[tuple[str, int], list[Any]]
) -> Found:
    """Yield the columns and side rows that differ from the body."""
    try:
        values, expected = index_values(resource, stored), side_rows(resource, row.seq, stored)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        yield Finding("body", where, "the body cannot be read, or is that of another resource")
        return
    for column, value in values.items():
        if not _same(getattr(row, column), value):
            yield Finding("index", where, f"the column {column} differs from the body")
    for table, rows in zip(side_tables(resource.name), expected, strict=True):
        if sorted(sides.get((table.name, row.seq), ()), key=str) != sorted(rows, key=str):
            yield Finding("index", where, f"the table {table.name} differs from the body")


def _same(column: Any, value: Any) -> bool:
    if isinstance(column, datetime) and isinstance(value, datetime):
        return column.timestamp() == value.timestamp()
    return bool(column == value)


def _stored_sides(connection: Connection, resource: Resource, seqs: Sequence[int]) -> dict[tuple[str, int], list[Any]]:
    """Return the side rows of a page of resources, by table and number."""
    found: dict[tuple[str, int], list[Any]] = {}
    for table in side_tables(resource.name):
        for row in connection.execute(select(table).where(table.c.seq.between(seqs[0], seqs[-1]))):
            found.setdefault((table.name, row.seq), []).append(tuple(row))
    return found


def _orphans(connection: Connection, resource: Resource) -> Found:
    """Yield side rows of resources that do not exist."""
    body = BODIES[resource.name]
    for side in side_tables(resource.name):
        query = select(side.c.seq).distinct().outerjoin(body, body.c.seq == side.c.seq).where(body.c.seq.is_(None))
        for (seq,) in connection.execute(query.order_by(side.c.seq).limit(MOST + 1)).all():
            yield Finding("index", f"{side.name} {seq}", "the row belongs to no resource")


def records_agree(connection: Connection, site: Site) -> Found:
    """Check of each loaded record that its body is readable, its patient is stored, and its charge is the Claim's."""
    for rows in _pages(connection, RECORD, "reference"):
        charges = _charges(connection, rows)
        named: dict[str, list[str]] = {}
        needed: dict[str, list[str]] = {}
        for row in rows:
            kind, _, id = row.reference.partition("/")
            body = _parsed(row.body)
            if body is None or (body.get("resourceType"), body.get("id"), row.type) != (kind, id, kind):
                yield Finding("body", row.reference, "the body cannot be read, or is that of another record")
                continue
            yield from _record_disagreements(row, body, charges, site)
            named[row.reference] = list(targets(body, site))
            needed[row.reference] = [f"Patient/{row.patient}"] if row.patient else []
        yield from _unresolved(connection, needed, notices=False)
        yield from _unresolved(connection, named, notices=True, besides=needed)


def _record_disagreements(
    row: Row[Any], body: dict[str, Any], charges: dict[str, tuple[str, int]], site: Site
) -> Found:
    flaws: list[Flaw] = []
    element = PATIENT_ELEMENTS.get(row.type, ("", False))[0]
    if row.patient != (patient_of(body, element, site, False, flaws) if element else None):
        yield Finding("index", row.reference, "the column patient differs from the body")
    if row.type == "Claim":
        charged = claims.charge(body, flaws)
        if charges.get(body["id"]) != ((charged.created, charged.cents) if charged else None):
            yield Finding("charge", row.reference, "the charge differs from the Claim")


def _charges(connection: Connection, rows: Sequence[Row[Any]]) -> dict[str, tuple[str, int]]:
    ids = [row.reference.partition("/")[2] for row in rows if row.type == "Claim"]
    query = select(CHARGE.c.claim, CHARGE.c.created, CHARGE.c.cents).where(CHARGE.c.claim.in_(ids))
    return {claim: (created, cents) for claim, created, cents in connection.execute(query)} if ids else {}


def _unresolved(
    connection: Connection, named: dict[str, list[str]], notices: bool, besides: dict[str, list[str]] | None = None
) -> Found:
    """Return the references of a page whose targets are not stored, without those in `besides`."""
    stored = _stored(connection, {target for found in named.values() for target in found})
    for where, found in named.items():
        for target in sorted(set(found) - stored - set((besides or {}).get(where, ()))):
            yield Finding("reference", where, f"{target} is not stored", notices)


def _stored(connection: Connection, wanted: set[str]) -> set[str]:
    """Return the references (`Type/id`) that are stored."""
    found = {AUTOMATION}
    for chunk in chunks(sorted(wanted)):
        found.update(connection.execute(select(RECORD.c.reference).where(RECORD.c.reference.in_(chunk))).scalars())
        for name, table in BODIES.items():
            ids = [target.partition("/")[2] for target in chunk if target.startswith(f"{name}/")]
            if ids:
                shown = connection.execute(select(table.c.id).where(table.c.id.in_(ids))).scalars()
                found.update(f"{name}/{id}" for id in shown)
    return found


def _parsed(body: str) -> dict[str, Any] | None:
    try:
        found = parse_json(body)
    except Malformed:
        return None
    return found if isinstance(found, dict) else None


def _pages(connection: Connection, table: Table, *keys: str) -> Iterator[list[Row[Any]]]:
    """Yield all rows of a table in the order of keys that name one row, a page at a time."""
    columns = [table.c[key] for key in keys]
    page = query = select(table).order_by(*columns).limit(PAGE)
    while rows := list(connection.execute(query)):
        yield rows
        query = page.where(tuple_(*columns) > tuple(getattr(rows[-1], key) for key in keys))


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, PAGE)):
        yield chunk
