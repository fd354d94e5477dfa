"""PostgreSQL as a store that several processes share. Rows go in by COPY; one lock orders those who write."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, Table, Text, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn

from fhir_service.interface.registry import RESOURCES
from fhir_service.store.dialect import Row
from fhir_service.store.expressions import ANY_CASE, HEAD
from fhir_service.store.tables import BODIES, SIDES, metadata, single

POOL = 20
"""Connections that a process opens at most."""
_FEW = 50
"""The most rows that are inserted one by one, and with those of other tables in one exchange."""
# First numbers of advisory locks: while a store is made, and for the one transaction that writes.
_MAKING, _WRITING = 1_128_353_602, 1_128_353_603

# A process that is stopped in the middle loses its lock; a store whose log is not flushed loses what it acknowledged.
_SESSION = """\
SET TIME ZONE 'UTC';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '60s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""


class PostgreSql:
    """A PostgreSQL database, or the schema of one that the URL's `search_path` names."""

    shared = True

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)

    # --- opening ---

    def open(self, create: bool) -> Engine:  # noqa: ARG002 - the database is there; whether the store is, comes later
        engine = create_engine(
            self._url,
            connect_args={} if "connect_timeout" in self._url.query else {"connect_timeout": 10},
            pool_size=POOL,
            max_overflow=0,
            pool_pre_ping=True,
            hide_parameters=True,
        )
        event.listen(engine, "connect", _begin_session)
        try:
            with engine.connect() as connection:
                encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        except DBAPIError as error:
            engine.dispose()
            raise OSError(f"{self._place} cannot be opened: {self._reason(error)}") from None
        if encoding != "UTF8":
            engine.dispose()
            raise OSError(f"{self._place} is encoded in {encoding}: a store needs UTF8")
        return engine

    @property
    def _place(self) -> str:
        """The database as messages name it: without user and password."""
        host = self._url.host or "this machine"
        return f"the database {self._url.database or ''} on {host}".replace("  ", " ")

    def _reason(self, error: DBAPIError) -> str:
        lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        password = str(self._url.password or "")
        return lines[0].replace(password, "***") if password else lines[0]

    def reader(self, engine: Engine, several: bool) -> Engine:
        level = "REPEATABLE READ" if several else "AUTOCOMMIT"
        return engine.execution_options(isolation_level=level, postgresql_readonly=several)

    def has_store(self, connection: Connection) -> bool:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MAKING})")
        return connection.exec_driver_sql("SELECT to_regclass('store') IS NOT NULL").scalar() is True

    def prepare(self, connection: Connection) -> None:
        """The collation for text in any case, of whatever this server offers; letter by letter where it can."""
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

    def complete(self, connection: Connection) -> None:
        """Indexes that a row store needs, and constraints behind what the writer checks."""
        for statement in _further_ddl():
            connection.exec_driver_sql(statement)

    def complete_resource(self, connection: Connection, name: str) -> None:
        """Make the indexes of one resource's tables."""
        for statement in _indexes_of(name):
            connection.exec_driver_sql(statement)

    # --- writing ---

    def lock(self, connection: Connection) -> int:
        raw = _raw(connection)
        with raw.pipeline():
            raw.execute(f"SELECT pg_advisory_xact_lock({_WRITING}, 'store'::regclass::oid::int4)".encode())
            # A statement of its own: it must see what was committed while the lock was waited for.
            last = raw.execute(_LAST_SEQ.encode())
        row = last.fetchone()
        return int(row[0]) if row else 0

    def passing(self, error: BaseException) -> bool:
        cause = error.orig if isinstance(error, DBAPIError) else error
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError | PoolTimeout)

    @contextmanager
    def at_once(self, connection: Connection, rows: int) -> Iterator[None]:
        """Few rows of several tables take one exchange. Many take one each, as COPY shares none."""
        with _raw(connection).pipeline() if rows <= _FEW else nullcontext():
            yield

    def append(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        if len(rows) <= _FEW:
            statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join(['%b'] * len(columns))})"
            _raw(connection).cursor().executemany(statement.encode(), rows)
            return
        statement = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with _raw(connection).cursor().copy(statement.encode()) as copy:
            copy.set_types([_TYPES[type(table.c[name].type).__name__] for name in columns])
            for row in rows:
                copy.write_row(row)

    def settle(self, _engine: Engine) -> None:
        """The server does it by itself."""

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        types = [_TYPES[type(table.c[name].type).__name__] for name in columns]
        arrays = ", ".join(f"unnest(%b::{kind}[]) AS {name}" for name, kind in zip(columns, types, strict=True))
        key, *others = columns
        sets = ", ".join(f"{name} = new.{name}" for name in others)
        statement = f"UPDATE {table.name} SET {sets} FROM (SELECT {arrays}) AS new WHERE {table.name}.{key} = new.{key}"
        _raw(connection).execute(statement.encode(), [list(values) for values in zip(*rows, strict=True)])

    def perhaps(self, _table: Table, codes: Collection[str]) -> Collection[str]:
        return codes

    def among(
        self,
        connection: Connection,
        table: Table,
        key: str,
        keys: Collection[Any],
        columns: Sequence[str],
        where: str = "true",
    ) -> list[Row]:
        if not keys:
            return []
        wanted = list(keys)
        among, values = f"{key} = ANY(%b::{_TYPES[type(table.c[key].type).__name__]}[])", [wanted]
        if key == "code":
            among = f"left(code, {HEAD}) = ANY(%b::text[]) AND {among}"
            values = [[code[:HEAD] for code in wanted], wanted]
        statement = f"SELECT {', '.join(columns)} FROM {table.name} WHERE {among} AND {where}"
        return _raw(connection).execute(statement.encode(), values).fetchall()


@compiles(CreateColumn, "postgresql")
def _column(element: CreateColumn, compiler: Any, **options: Any) -> str:
    """Text is compared and sorted byte for byte, as it is on DuckDB."""
    # Not a property of the type: SQLAlchemy would write it behind every parameter, where it may not stand.
    made: str = compiler.visit_create_column(element, **options)
    ours = element.element.table.metadata is metadata and isinstance(element.element.type, Text)
    return made.replace(" TEXT", ' TEXT COLLATE "C"', 1) if ours else made


_TYPES = {"Text": "text", "BigInteger": "int8", "Integer": "int4", "DateTime": "timestamptz"}
_LAST_SEQ = "SELECT greatest(0, {})".format(", ".join(f"(SELECT max(seq) FROM {t.name})" for t in BODIES.values()))


def _parsed(text: str) -> URL:
    try:
        return make_url(text).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        # The causes hold parts of the text, and so perhaps of the password.
        raise ValueError("the database URL cannot be read: is everything in the password percent-encoded?") from None


def _begin_session(raw: psycopg.Connection[Any], _record: object) -> None:
    raw.autocommit = True
    raw.execute(_SESSION.encode())
    raw.autocommit = False


def _raw(connection: Connection) -> psycopg.Connection[Any]:
    """The psycopg connection below a SQLAlchemy one."""
    raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    return raw


def _further_ddl() -> Iterator[str]:
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
