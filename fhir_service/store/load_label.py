"""The label of the newest load of reference data that had one: the store holds it, and says it in a file beside itself.

Whoever loads under a label can tell from that file, without opening the store, whether the store still holds what was
loaded: a store that was put back from a copy says the label of then as soon as a service has opened it.
"""

import json
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, update

from fhir_service.paths import exists
from fhir_service.store.tables import STORE

NAME = "load_label"


def set_label(connection: Connection, label: str) -> None:
    """Put the label into the store, in the transaction of the connection."""
    connection.execute(update(STORE).where(STORE.c.name == NAME).values(value=label))


def say_label(store: Path | None, label: str) -> None:
    """Write the label beside a store that is a file, unless it is there: `<store>.loaded.json`."""
    if store is None:
        return
    path = store.with_name(f"{store.name}.loaded.json")
    said = json.dumps({"store": store.stat().st_ino, "label": label}).encode()
    with suppress(OSError):  # who cannot write here loads nothing either
        if not exists(path) or path.read_bytes() != said:
            part = path.with_suffix(".part")
            part.write_bytes(said)
            part.replace(path)
