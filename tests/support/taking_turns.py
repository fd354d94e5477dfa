"""PostgreSQL stores of schema version 3, in which processes took turns to write."""

import psycopg

from fhir_service.store.tables import BODIES, SIDES

_BEFORE = """
DROP SEQUENCE resource_seq;
DROP TRIGGER account_covered ON account;
DROP FUNCTION account_is_covered();
DROP FUNCTION all_are_as_read(bigint, bigint);
DROP INDEX allocation_part;
CREATE INDEX allocation_payment ON allocation (payment);
DELETE FROM store WHERE name IN ('floor', 'cluster');
UPDATE store SET value = '3' WHERE name = 'schema_version';
"""


def take_turns(url: str) -> None:
    """Bring a store of schema version 4 back to version 3. url: SQLAlchemy's."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        for table in BODIES.values():
            connection.execute(f"ALTER TABLE {table.name} DROP COLUMN xid".encode())
        for table in SIDES.values():
            connection.execute(f"ALTER TABLE {table.name} DROP COLUMN IF EXISTS guard".encode())
        connection.execute(_BEFORE.encode())
