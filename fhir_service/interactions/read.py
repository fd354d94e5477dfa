"""Read: a resource by its id."""

from typing import Any

from sqlalchemy import ColumnElement, null

from fhir_service.interface.datatypes import is_id
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.vocabulary import Resource
from fhir_service.store.bodies import Bodies, Found
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES

COLUMNS = ("body", "version", "updated_at")


class Reader:
    """Reads resources: from memory where they are at hand, else from the store."""

    def __init__(self, store: Store, bodies: Bodies) -> None:
        self._store, self._bodies = store, bodies

    def at_hand(self, resource: Resource, resource_id: str) -> Found | None:
        """Return a resource that is in memory. Does not wait."""
        return self._bodies.get((resource.name, resource_id))

    def look_up(self, resource: Resource, resource_id: str) -> Found:
        """Read a resource from the store. Raises the 404 that names type and id."""
        if not is_id(resource_id):
            raise unknown_resource(resource.name, resource_id)
        epoch, table = self._bodies.epoch(), BODIES[resource.name]
        columns = (*COLUMNS, resource.of_patient.column) if resource.of_patient else COLUMNS
        with self._store.read(several=False) as connection:
            rows = self._store.dialect.among(connection, table, "id", [resource_id], columns)
        if not rows:
            raise unknown_resource(resource.name, resource_id)
        body, version, updated_at, *patients = rows[0]
        found = Found(body.encode(), version, updated_at, tuple(filter(None, patients)))
        self._bodies.keep((resource.name, resource_id), found, epoch)
        return found

    def read(self, resource: Resource, resource_id: str) -> Found:
        """Read a resource from wherever it is. Raises the 404 that names type and id."""
        return self.at_hand(resource, resource_id) or self.look_up(resource, resource_id)


def patient_column(resource: Resource) -> ColumnElement[Any]:
    """Return the column with the patient whom a resource is about; null for a resource that is about nobody."""
    return BODIES[resource.name].c[resource.of_patient.column] if resource.of_patient else null()
