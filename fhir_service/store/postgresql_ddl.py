"""What a store in PostgreSQL has beside its tables: a collation, indexes, constraints, and their columns.

The constraints repeat checks of the service. Two processes may decide at the same time on what they have read. The
later one then fails at a constraint, or at a row that has changed, and carries out its batch again.
"""

import re
from collections.abc import Collection, Iterator
from itertools import chain

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from fhir_service.interface.registry import RESOURCES
from fhir_service.store.expressions import ANY_CASE, HEAD
from fhir_service.store.schema import STATEMENTS
from fhir_service.store.tables import BODIES, SIDES, single

NUMBERS = 10_000
"""A batch reserves so many numbers, more than it has entries. The next batch of any process gets higher ones."""
LAST_SEQ = "SELECT greatest(0, {})".format(", ".join(f"(SELECT max(seq) FROM {t.name})" for t in BODIES.values()))
"""SQL: the highest number of a resource."""


def make_collation(connection: Connection) -> None:
    """Make the collation for comparing text without case, from the best provider that the server has."""
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


def make_tables(connection: Connection, names: Collection[str]) -> None:
    """Make some tables, and the indexes of resources among them. Text is compared and sorted by bytes, as in DuckDB."""
    for name in names:
        made = re.sub(r" USING COMPRESSION \w+", "", STATEMENTS[name])
        connection.exec_driver_sql(made.replace(" TEXT", ' TEXT COLLATE "C"'))
    for statement in chain.from_iterable(_indexes_of(name) for name in RESOURCES if BODIES[name].name in names):
        connection.exec_driver_sql(statement)


def make_constraints(connection: Connection) -> None:
    """Make all further indexes, and the constraints."""
    for statement in _CONSTRAINTS:
        connection.exec_driver_sql(statement)


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
    "CREATE INDEX task_updated_at ON task (updated_at)",
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
    """Add what several writing processes need. Stores of schema version 3 get it by a migration.

    Rows that are stored already have no transaction id. They have numbers up to the `floor`, and belong to every page.
    """
    last = connection.exec_driver_sql(LAST_SEQ).scalar_one()
    for statement in _contention(last):
        connection.exec_driver_sql(statement)


def _contention(last: int) -> Iterator[str]:
    yield f"CREATE SEQUENCE resource_seq INCREMENT {NUMBERS} START {last + 1}"
    for table in BODIES.values():
        # The id of the transaction that stored a row tells if a snapshot for paging includes the row.
        yield f"ALTER TABLE {table.name} ADD COLUMN xid xid8"
        yield f"ALTER TABLE {table.name} ALTER COLUMN xid SET DEFAULT pg_current_xact_id()"
    for table in SIDES.values():
        if "digest" in table.c:
            # The guard keeps two conditional creates of different processes from storing the same identifier.
            yield f"ALTER TABLE {table.name} ADD COLUMN guard int8"
            yield (
                f"CREATE UNIQUE INDEX {table.name}_guard ON {table.name} (left(code, {HEAD}), guard) "
                "WHERE guard IS NOT NULL"
            )
    yield from _GUARDS
    yield f"INSERT INTO store (name, value) VALUES ('floor', '{last}'), ('cluster', ({CLUSTER}))"


CLUSTER = "SELECT system_identifier::text FROM pg_control_system()"
"""SQL: the identity of the database cluster, whose transactions are numbered."""
WHERE = f"""SELECT cluster, left(md5(cluster || left(pg_walfile_name(pg_current_wal_lsn()), 8)), 8)
            FROM ({CLUSTER}) AS here (cluster)"""
"""SQL: that identity, and the epoch, which names one sequence of transaction ids. A new timeline begins another one."""
RECOGNISE = f"""WITH moved AS (
                    UPDATE store SET value = ({CLUSTER}) WHERE name = 'cluster' AND value <> ({CLUSTER}) RETURNING 1
                )
                UPDATE store SET value = ({LAST_SEQ}) WHERE name = 'floor' AND EXISTS (SELECT FROM moved)"""
"""SQL: raise the floor above all rows, once, if a dump has brought the store here from another cluster."""
_GUARDS = (
    "DROP INDEX allocation_payment",
    "CREATE UNIQUE INDEX allocation_part ON allocation (payment, claim)",
    """CREATE FUNCTION all_are_as_read(changed bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
       BEGIN
           IF changed <> wanted THEN
               RAISE EXCEPTION 'a row has changed since it was read' USING ERRCODE = 'serialization_failure';
           END IF;
       END $$""",
    # Only copayments may take a balance below zero. A load of claims inserts accounts, and is not checked here.
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
