"""The label of the newest labelled load of reference data. It is in the store, and in a file beside the store.

A loader reads that file to see if the store still holds what it loaded, without opening the store. After a store was
put back from a copy, the next service that opens it writes the copy's label to the file.
"""

import json
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, update

from fhir_service.paths import exists
from fhir_service.store.tables import STORE

NAME = "load_label"


def set_label(connection: Connection, label: str) -> None:
    """Set the label in the store, in the transaction of the connection."""
    connection.execute(update(STORE).where(STORE.c.name == NAME).values(value=label))


def say_label(store: Path | None, label: str) -> None:
    """Write the label to `<store>.loaded.json` if it is not there yet. Do nothing for a store that is no file."""
    if store is None:
        return
    path = store.with_name(f"{store.name}.loaded.json")
    said = json.dumps({"store": store.stat().st_ino, "label": label}).encode()
    with suppress(OSError):  # a user that may not write here cannot load either
        if not exists(path) or path.read_bytes() != said:
            part = path.with_suffix(".part")
            part.write_bytes(said)
            part.replace(path)
