"""The rows of commits: what they add to each table, and what they change by key. As bytes, and into the tables."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection

from fhir_service.store.dialect import Dialect, Row
from fhir_service.store.tables import ACCOUNT, CHARGE, columns_of, metadata

CHANGED = {ACCOUNT.name: ("patient", "paid"), CHARGE.name: ("claim", "paid")}
"""The tables whose rows change with creates: key, and the one column that is set."""

Sums = Mapping[str, dict[str, int]]
"""What is paid, by table and key."""

_WRITER = msgspec.msgpack.Encoder()
_READER = msgspec.msgpack.Decoder(tuple[dict[str, list[tuple[Any, ...]]], dict[str, dict[str, int]]])


@dataclass(slots=True)
class Rows:
    """Rows added, by table in the order of its columns, and values set, by table and key. Rows are added first."""

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
        """Return the rows as bytes, which `decoded` reads. Times are kept as instants."""
        return _WRITER.encode((self.added, self.changed))

    @classmethod
    def decoded(cls, content: bytes) -> "Rows":
        added, changed = _READER.decode(content)
        return cls(defaultdict(list, added), defaultdict(dict, changed))

    def write(self, connection: Connection, dialect: Dialect) -> None:
        """Put the rows into the tables, within the connection's transaction: a statement or two for each table."""
        self.add(connection, dialect)
        for name, values in self.changed.items():
            if values:
                dialect.change(connection, metadata.tables[name], list(values.items()), CHANGED[name])

    def add(self, connection: Connection, dialect: Dialect) -> None:
        """Put what is added into the tables, and leave what is changed."""
        tables = [(metadata.tables[name], rows) for name, rows in self.added.items()]
        # A payment that reaches no charge has no parts.
        dialect.append(connection, [(table, rows, columns_of(table)) for table, rows in tables if rows])
