"""The rows of a store, to be compared with those of another one."""

from typing import Any

from sqlalchemy import select

from fhir_service.service import Service
from fhir_service.store.tables import CLIENT, STORE, TOKEN, metadata

MADE_ANEW = (STORE, TOKEN, CLIENT)
"""Tables whose rows differ by the making of a store and of its clients."""


def tables(service: Service) -> dict[str, list[Any]]:
    """All rows of all other tables, but no numbers of transactions: a server counts those for all its databases."""
    with service.store.read(sums=True) as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table)).all()))
            for table in metadata.sorted_tables
            if table not in MADE_ANEW
        }
