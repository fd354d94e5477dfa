"""Read: a resource by its id."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from fhir_service.interface.outcomes import unknown_resource
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES


class Found(NamedTuple):
    """A stored resource: its body with markers, version and time of the last change."""

    body: str
    version: int
    updated_at: datetime


def read(store: Store, resource_type: str, resource_id: str) -> Found:
    """The resource. Raises the 404 that names type and id."""
    table = BODIES[resource_type]
    query = select(table.c.body, table.c.version, table.c.updated_at).where(table.c.id == resource_id)
    with store.read() as connection:
        row = connection.execute(query).first()
    if row is None:
        raise unknown_resource(resource_type, resource_id)
    return Found(row.body, row.version, row.updated_at)
