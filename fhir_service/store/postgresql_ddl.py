"""The additions of a store in PostgreSQL to its tables: collation, indexes, constraints, and the columns behind them.

The constraints stand behind what the service checks. Two processes that decide at once cannot both be right: the later
one fails on a constraint, or on a row that is no longer what it read, and its batch is run again.
"""

from collections.abc import Iterator

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from fhir_service.interface.registry import RESOURCES
from fhir_service.store.expressions import ANY_CASE, HEAD
from fhir_service.store.tables import BODIES, SIDES, single

NUMBERS = 10_000
"""Numbers that a batch takes at once: more than it has entries. The next batch of any process begins behind them."""
LAST_SEQ = "SELECT greatest(0, {})".format(", ".join(f"(SELECT max(seq) FROM {t.name})" for t in BODIES.values()))
"""Selects the highest number of a resource."""


def make_collation(connection: Connection) -> None:
    """Make the collation for text in any case, of whatever this server offers; letter by letter where it can."""
    version = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
    kinds = [
        *(["(provider = builtin, locale = 'C.UTF-8')"] if int(version) >= 170000 else []),
        "(provider = libc, locale = 'C.UTF-8')",
        "(provider = icu, locale = 'und')",
        'FROM "default"',
    ]
    for kind in kinds:
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"CREATE COLLATION {ANY_CASE} {kind}")
        except DBAPIError:
            continue
        return


def make_indexes(connection: Connection) -> None:
    """Make the indexes that a row store needs, and constraints."""
    for statement in _indexes():
        connection.exec_driver_sql(statement)


def make_indexes_of(connection: Connection, name: str) -> None:
    """Make the indexes of one resource's tables."""
    for statement in _indexes_of(name):
        connection.exec_driver_sql(statement)


def _indexes() -> Iterator[str]:
    for name in RESOURCES:
        yield from _indexes_of(name)
    yield f"CREATE INDEX task_updated_at ON {BODIES['Task'].name} (updated_at)"
    yield from _CONSTRAINTS


def _indexes_of(name: str) -> Iterator[str]:
    table = BODIES[name]
    yield f"CREATE UNIQUE INDEX {table.name}_seq ON {table.name} (seq)"
    for param in single(RESOURCES[name]):
        if param.kind not in ("contains", "starts"):
            column = f"{param.column}_start" if param.kind == "date" else param.column
            yield f"CREATE INDEX {table.name}_{param.column} ON {table.name} ({column}, seq)"
    for (of, _), side in SIDES.items():
        if of == name:
            yield f"CREATE INDEX {side.name}_head ON {side.name} (left(code, {HEAD}), seq)"
            yield f"CREATE INDEX {side.name}_seq ON {side.name} (seq)"


_CONSTRAINTS = (
    "CREATE UNIQUE INDEX note_encounter ON note (encounter)",
    "CREATE UNIQUE INDEX history_version ON history (reference, version)",
    "CREATE INDEX history_updated_at ON history (updated_at)",
    "CREATE INDEX charge_patient ON charge (patient)",
    "ALTER TABLE charge ADD CONSTRAINT charge_paid CHECK (paid BETWEEN 0 AND cents)",
    "CREATE INDEX allocation_payment ON allocation (payment)",
    "CREATE INDEX allocation_claim ON allocation (claim)",
    "ALTER TABLE allocation ADD CONSTRAINT allocation_cents CHECK (cents > 0)",
    "CREATE UNIQUE INDEX document_position ON document (report, position)",
    "CREATE INDEX token_client ON token (client)",
)


def let_processes_contend(connection: Connection) -> None:
    """Make what lets several processes write at once. A store of schema version 3, which took turns, gets it too.

    What is stored already has no transaction, and is behind the `floor`: it belongs to every page.
    """
    last = connection.exec_driver_sql(LAST_SEQ).scalar_one()
    for statement in _contention(last):
        connection.exec_driver_sql(statement)


def _contention(last: int) -> Iterator[str]:
    yield f"CREATE SEQUENCE resource_seq INCREMENT {NUMBERS} START {last + 1}"
    for table in BODIES.values():
        # The transaction that stored a row: whether a page's snapshot had seen it.
        yield f"ALTER TABLE {table.name} ADD COLUMN xid xid8"
        yield f"ALTER TABLE {table.name} ALTER COLUMN xid SET DEFAULT pg_current_xact_id()"
    for table in SIDES.values():
        if "digest" in table.c:
            # Digest of system and code of an identifier that a conditional create asked for: two cannot both store it.
            yield f"ALTER TABLE {table.name} ADD COLUMN guard int8"
            yield (
                f"CREATE UNIQUE INDEX {table.name}_guard ON {table.name} (left(code, {HEAD}), guard) "
                "WHERE guard IS NOT NULL"
            )
    yield from _GUARDS
    yield f"INSERT INTO store (name, value) VALUES ('floor', '{last}'), ('cluster', ({CLUSTER}))"


CLUSTER = "SELECT system_identifier::text FROM pg_control_system()"
"""Selects the identity of the database server's files, in which transactions are counted."""
WHERE = f"""SELECT cluster, left(md5(cluster || left(pg_walfile_name(pg_current_wal_lsn()), 8)), 8)
            FROM ({CLUSTER}) AS here (cluster)"""
"""Selects that identity, and the epoch: the name of one run of transaction ids, which also ends with a timeline."""
RECOGNISE = f"""WITH moved AS (
                    UPDATE store SET value = ({CLUSTER}) WHERE name = 'cluster' AND value <> ({CLUSTER}) RETURNING 1
                )
                UPDATE store SET value = ({LAST_SEQ}) WHERE name = 'floor' AND EXISTS (SELECT FROM moved)"""
"""Puts the floor above all that is stored, where the store came here from other files, by a dump. Does so once."""
_GUARDS = (
    "DROP INDEX allocation_payment",
    "CREATE UNIQUE INDEX allocation_part ON allocation (payment, claim)",
    """CREATE FUNCTION all_are_as_read(changed bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
       BEGIN
           IF changed <> wanted THEN
               RAISE EXCEPTION 'a row has changed since it was read' USING ERRCODE = 'serialization_failure';
           END IF;
       END $$""",
    # Only copayments may take a balance below zero. Loads of claims insert accounts anew, which this does not see.
    """CREATE FUNCTION account_is_covered() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
           IF NEW.paid - NEW.charged > greatest(OLD.paid - OLD.charged, 0) + (
               SELECT coalesce(sum(cents), 0) FROM payment_notice
               WHERE request = NEW.patient AND claim IS NOT NULL AND xid = pg_current_xact_id()
           ) THEN
               RAISE EXCEPTION 'payments go beyond the balance' USING ERRCODE = 'check_violation';
           END IF;
           RETURN NULL;
       END $$""",
    """CREATE CONSTRAINT TRIGGER account_covered AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
       WHEN (NEW.paid > NEW.charged AND NEW.paid > OLD.paid) EXECUTE FUNCTION account_is_covered()""",
)
