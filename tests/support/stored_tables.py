"""The rows of a store, to compare two stores."""

from typing import Any

from sqlalchemy import select

from fhir_service.service import Service
from fhir_service.store.schema import TABLES
from fhir_service.store.tables import CLIENT, STORE, TOKEN

MADE_ANEW = (STORE, TOKEN, CLIENT)
"""Tables with random values, such as the store's id and its clients."""


def tables(service: Service) -> dict[str, list[Any]]:
    """Return all rows of the other tables, without transaction numbers, which a server counts for all its databases."""
    with service.store.read(sums=True) as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table)).all()))
            for table in TABLES.values()
            if table not in MADE_ANEW
        }
