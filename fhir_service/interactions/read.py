"""Read: a resource by its id."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, null, select

from fhir_service.interface.datatypes import is_id
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.vocabulary import Resource
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES


class Found(NamedTuple):
    """A stored resource: its body with markers, version, time of the last change, and the ids of whom it is about."""

    body: str
    version: int
    updated_at: datetime
    patients: tuple[str, ...]


def patient_column(resource: Resource) -> ColumnElement[Any]:
    """The column with the id of the patient whose a resource is; null for what is nobody's."""
    return BODIES[resource.name].c[resource.of_patient.column] if resource.of_patient else null()


def read(store: Store, resource: Resource, resource_id: str) -> Found:
    """The resource. Raises the 404 that names type and id."""
    table = BODIES[resource.name]
    query = select(table.c.body, table.c.version, table.c.updated_at, patient_column(resource).label("patient"))
    query = query.where(table.c.id == resource_id)
    if not is_id(resource_id):
        raise unknown_resource(resource.name, resource_id)
    with store.read(several=False) as connection:
        row = connection.execute(query).first()
    if row is None:
        raise unknown_resource(resource.name, resource_id)
    return Found(row.body, row.version, row.updated_at, (row.patient,) if row.patient else ())
