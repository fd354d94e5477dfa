"""The rows that commits add to each table and change by key: write them into the tables, or encode them as bytes."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection

from fhir_service.store.dialect import Dialect, Row
from fhir_service.store.schema import TABLES
from fhir_service.store.tables import ACCOUNT, CHARGE, columns_of

CHANGED = {ACCOUNT.name: ("patient", "paid"), CHARGE.name: ("claim", "paid")}
"""The tables whose rows a create may change: the key, and the one column that is set."""

Sums = Mapping[str, dict[str, int]]
"""The cents that are paid, by table and key."""

_WRITER = msgspec.msgpack.Encoder()
_READER = msgspec.msgpack.Decoder(tuple[dict[str, list[tuple[Any, ...]]], dict[str, dict[str, int]]])


@dataclass(slots=True)
class Rows:
    """The added rows by table, in the order of its columns, and the new values by table and key."""

    added: defaultdict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    changed: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def __bool__(self) -> bool:
        return bool(self.added or self.changed)

    def follow(self, later: "Rows") -> None:
        """Add the rows of a later commit."""
        for table, rows in later.added.items():
            self.added[table] += rows
        for table, values in later.changed.items():
            self.changed[table] |= values

    def encoded(self) -> bytes:
        """Return the rows as bytes for `decoded`. Times keep their instant, and lose their zone."""
        return _WRITER.encode((self.added, self.changed))

    @classmethod
    def decoded(cls, content: bytes) -> "Rows":
        added, changed = _READER.decode(content)
        return cls(defaultdict(list, added), defaultdict(dict, changed))

    def write(self, connection: Connection, dialect: Dialect) -> None:
        """Write the rows into the tables, in the connection's transaction, by one or two statements for each table."""
        self.add(connection, dialect)
        for name, values in self.changed.items():
            if values:
                dialect.change(connection, TABLES[name], list(values.items()), CHANGED[name])

    def add(self, connection: Connection, dialect: Dialect) -> None:
        """Write the added rows into the tables, without the changes."""
        tables = [(TABLES[name], rows) for name, rows in self.added.items()]
        # A table may have no rows: a payment that reaches no charge has no allocation.
        dialect.append(connection, [(table, rows, columns_of(table)) for table, rows in tables if rows])
