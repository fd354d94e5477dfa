"""Older stores brought to the present schema: a function for each step, in the transaction that opens the store."""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, update

from fhir_service.store.tables import SCHEMA_VERSION, STORE

Step = Callable[[Connection], None]

# From the version named to the next. There is none yet: version 1 is the first.
STEPS: Mapping[int, Step] = {}


class StoreVersion(Exception):
    """The store was made by a version of this software that cannot be followed from here."""


def migrate(
    connection: Connection, version: int, steps: Mapping[int, Step] = STEPS, goal: int = SCHEMA_VERSION
) -> None:
    """Bring a store from its version to the present one. Raises StoreVersion when that cannot be."""
    if version > goal:
        raise StoreVersion(
            f"the store has schema version {version}, this software knows {goal}: use a newer version of Chartferry"
        )
    for step in range(version, goal):
        if step not in steps:
            raise StoreVersion(
                f"the store has schema version {version}, which this software cannot bring to {goal}: "
                "open it once with the version of Chartferry between them"
            )
        steps[step](connection)
    if version < goal:
        connection.execute(update(STORE).where(STORE.c.name == "schema_version").values(value=str(goal)))
