"""Migrate older stores to the present schema: a function for each step, in the transaction that opens the store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from fhir_service.interface.datatypes import reference
from fhir_service.interface.json_text import dump_json, parse_json
from fhir_service.interface.resources.observation import OBSERVATION, content_of
from fhir_service.store.changes import Changes
from fhir_service.store.dialect import Dialect
from fhir_service.store.tables import BODIES, RECORD, SCHEMA_VERSION, STORE

Step = Callable[[Connection, Dialect], None]
PAGE = 2_000


def _show_observations(connection: Connection, dialect: Dialect) -> None:
    """Migrate to version 2: make resources of the Observations that were loaded as records."""
    name = OBSERVATION.name
    dialect.make_tables(connection, ("observation", "observation_code"))
    others = (table for of, table in BODIES.items() if of != name)
    last = max(connection.execute(select(func.coalesce(func.max(table.c.seq), 0))).scalar_one() for table in others)
    next_seq, now = partial(next, count(last + 1)), datetime.now(UTC)
    for rows in _loaded(connection, name):
        changes = Changes(next_seq)
        for row in rows:
            stored = content_of(parse_json(row.body))
            if row.patient:
                stored["subject"] = reference(f"Patient/{row.patient}")
            changes.add_resource(OBSERVATION, stored, dump_json(stored).decode(), "reference", now)
        changes.flush(connection, dialect)


def _loaded(connection: Connection, kind: str) -> Iterator[Sequence[Row[Any, Any, Any]]]:
    """Yield the loaded records of a type, a page at a time."""
    last = ""
    query = select(RECORD.c.reference, RECORD.c.patient, RECORD.c.body).where(RECORD.c.type == kind)
    ordered = query.order_by(RECORD.c.reference).limit(PAGE)
    while rows := connection.execute(ordered.where(RECORD.c.reference > last)).all():
        yield rows
        last = rows[-1].reference


# The step from each version to the next.
STEPS: Mapping[int, Step] = {
    1: _show_observations,
    2: lambda connection, dialect: dialect.make_tables(connection, ("client_keys", "assertion")),
    3: lambda connection, dialect: dialect.let_processes_contend(connection),
}


class StoreVersion(Exception):
    """The store has a schema version that this software cannot migrate from."""


def migrate(
    connection: Connection,
    dialect: Dialect,
    version: int,
    steps: Mapping[int, Step] = STEPS,
    goal: int = SCHEMA_VERSION,
) -> None:
    """Migrate a store from its version to `goal`. Raises StoreVersion if it is newer, or a step is missing."""
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
        steps[step](connection, dialect)
    if version < goal:
        connection.execute(update(STORE).where(STORE.c.name == "schema_version").values(value=str(goal)))
