"""PostgreSQL as a store that several processes share, and write to at once.

A batch reads without a lock of rows, and writes in set-based statements that fail where a row is no longer what was
read. All batches share one advisory lock, which loads of reference data take alone, as they change what rules rest on.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fhir_service.store.arrays import Array, array
from fhir_service.store.dialect import Added, AttemptLocks, Dialect, Row, RowQuery, cause_of
from fhir_service.store.expressions import HEAD
from fhir_service.store.postgresql_ddl import (
    NUMBERS,
    RECOGNISE,
    let_processes_contend,
    make_collation,
    make_constraints,
    make_tables,
)
from fhir_service.store.postgresql_sessions import SESSION, Sessions
from fhir_service.store.schema import STATEMENTS
from fhir_service.store.tables import ALLOCATION, BODIES, GUARD, HISTORY, SIDES

POOL = 20
"""The most connections that a process opens."""
_LOOKERS, _ANSWERING = 4, 10
"""Connections for look-ups, and for the reads of requests. Slow searches leave the others to the writer."""
_FEW = 3
"""The most rows that are inserted by VALUES: arrays take longer for so few."""
_FREE = frozenset((*BODIES.values(), *SIDES.values(), ALLOCATION, HISTORY))
"""Tables in which two batches never meet, but for guards: a key begins with a fresh id, or one that the batch locks."""
_MAKING, _WRITING, _CLIENTS = 1_128_353_602, 1_128_353_603, 1_128_353_604
"""The first numbers of the advisory locks for making a store, writing resources, and writing clients."""

# From version 14 on, the server notices within seconds that the asking process is gone.
_ENDED_WITH_CLIENT = """\
SELECT set_config('client_connection_check_interval', '5s', false)
WHERE current_setting('client_connection_check_interval', true) IS NOT NULL
"""
# Look-ups and batches find rows by indexed keys. Planning that each time takes a third of the server's work. A
# kept plan has to stay good while a table grows, so that it must not scan one.
_KEPT_PLANS = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}


class PostgreSql(Dialect):
    """A PostgreSQL database, or the schema of one that the URL's `search_path` names."""

    shared, broken = True, False

    def __init__(self, url: str) -> None:
        self._sessions = Sessions(url)

    @property
    def epoch(self) -> str:
        return self._sessions.epoch

    # --- opening ---

    def open(self, create: bool) -> Engine:  # noqa: ARG002 - the database is there; whether the store is, comes later
        engine = self._sessions.engine(POOL - _LOOKERS - _ANSWERING, SESSION)
        try:
            with engine.connect() as connection:
                encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        except DBAPIError as error:
            engine.dispose()
            raise OSError(f"{self._sessions.place} cannot be opened: {self._sessions.reason(error)}") from None
        if encoding != "UTF8":
            engine.dispose()
            raise OSError(f"{self._sessions.place} has the encoding {encoding}: a store needs a database with UTF8")
        return engine

    def answering(self, engine: Engine, seconds: int) -> Engine:  # noqa: ARG002 - these have connections of their own
        session = f"{SESSION};\nSET statement_timeout = '{seconds}s';\n{_ENDED_WITH_CLIENT}"
        return self._sessions.engine(_ANSWERING, session)

    def looker(self) -> Engine:
        kept_plans = "".join(f";\nSET {name} = {value}" for name, value in _KEPT_PLANS.items())
        return self._sessions.engine(_LOOKERS, SESSION + kept_plans, tries=False, isolation_level="AUTOCOMMIT")

    def reader(self, engine: Engine, several: bool) -> Engine:
        level = "REPEATABLE READ" if several else "AUTOCOMMIT"
        return engine.execution_options(isolation_level=level, postgresql_readonly=several)

    def has_store(self, connection: Connection) -> bool:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MAKING})")
        return connection.exec_driver_sql("SELECT to_regclass('store') IS NOT NULL").scalar() is True

    def make_store(self, connection: Connection) -> None:
        make_collation(connection)
        self.make_tables(connection, STATEMENTS)
        make_constraints(connection)
        let_processes_contend(connection)

    def make_tables(self, connection: Connection, names: Collection[str]) -> None:
        make_tables(connection, names)

    def let_processes_contend(self, connection: Connection) -> None:
        let_processes_contend(connection)

    def recognise(self, connection: Connection) -> None:
        connection.exec_driver_sql(RECOGNISE)

    # --- writing ---

    def lock(self, connection: Connection, resources: bool) -> int:
        raw = _raw(connection)
        with raw.pipeline():
            raw.execute(_lock("pg_advisory_xact_lock", _WRITING if resources else _CLIENTS))
            # Take the number after the lock: numbers then follow the order of commits.
            number = raw.execute(_NUMBER)
        (last,) = _fetched(number)[0]
        return int(last) - 1

    def enter(self, connection: Connection, way: AttemptLocks) -> "BatchTransaction":
        """Begin a batch on a connection without a transaction, while other processes may write."""
        return BatchTransaction(_raw(connection), way)

    def passing(self, error: BaseException) -> bool:
        return isinstance(cause_of(error), psycopg.OperationalError | psycopg.InterfaceError | PoolTimeout)

    def ended(self, error: BaseException) -> bool:
        return isinstance(cause_of(error), psycopg.errors.QueryCanceled)

    def collided(self, error: BaseException) -> bool:
        """True if a batch failed because of another one. Nothing of it is stored."""
        return isinstance(cause_of(error), _COLLISIONS)

    def lost(self, error: BaseException) -> bool:
        """True if the server did not answer. If it was asked to commit, it may have done so or not."""
        state = getattr(cause_of(error), "sqlstate", None) or ""
        return self.passing(error) and (not state or state[:2] in _LOST)

    def at_once(self, connection: Connection) -> AbstractContextManager[Any]:
        return _raw(connection).pipeline()

    def append(self, connection: Connection, added: Sequence[Added]) -> None:
        """Append rows to tables: a few rows of several tables by one statement, all else table by table.

        The parts of the one statement run in any order. Two batches could so wait for each other in a ring. Rows that
        may wait for another process are therefore appended after it, in the given order.
        """
        raw, joined = _raw(connection), [one for one in added if len(one[1]) <= _FEW and not _may_wait(one)]
        if len(joined) > 1:
            *first, last = map(_inserted, joined)
            named = b", ".join(b"a%d AS (%b)" % (number, one) for number, one in enumerate(first))
            values = [value for _, rows, _ in joined for row in rows for value in row]
            raw.execute(b"WITH %b %b" % (named, last), values, prepare=True)
            added = [one for one in added if len(one[1]) > _FEW or _may_wait(one)]
        for table, rows, columns in added:
            if len(rows) <= _FEW:
                raw.execute(_inserted((table, rows, columns)), [value for row in rows for value in row], prepare=True)
                continue
            arrays, values = _arrays(table, rows, columns)
            names = ", ".join(columns)
            raw.execute(f"INSERT INTO {table.name} ({names}) SELECT {arrays}".encode(), values, prepare=True)

    def change(self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str]) -> None:
        arrays, values = _arrays(table, rows, columns)
        _raw(connection).execute(_update(table, columns, arrays), [*values, values[0]], prepare=True)

    def change_as_read(
        self, connection: Connection, table: Table, rows: Sequence[Row], columns: Sequence[str], read: Sequence[Any]
    ) -> None:
        """Change rows by their key, in the order of keys.

        It fails if the second column of a row is no longer as in `read`.
        """
        raw, (key, compared, *_) = _raw(connection), columns
        if len(rows) > 1:
            # An UPDATE locks rows in the order of its plan. Lock them in the order of keys first.
            keys = [array("text", [row[0] for row in rows])]
            held = f"SELECT FROM {table.name} WHERE {key} = ANY(%b) ORDER BY {key} FOR NO KEY UPDATE"
            raw.execute(held.encode(), keys, prepare=True)
        arrays, values = _arrays(table, rows, columns)
        changed = _update(table, columns, f"{arrays}, unnest(%b) AS read")
        changed += f" AND {table.name}.{compared} = new.read RETURNING 1".encode()
        statement = b"WITH changed AS (%b) SELECT all_are_as_read((SELECT count(*) FROM changed), %%b)" % changed
        raw.execute(statement, [*values, array("int8", read), values[0], len(rows)], prepare=True)

    def remove(self, connection: Connection, table: Table, seqs: Sequence[int]) -> None:
        statement = f"DELETE FROM {table.name} WHERE seq = ANY(%b)"
        _raw(connection).execute(statement.encode(), [array("int8", seqs)], prepare=True)

    def store(self, connection: Connection, write: Callable[[], None]) -> None:
        """Write and commit in one exchange with the server."""
        raw = _raw(connection)
        with raw.pipeline():
            write()
            raw.execute(b"COMMIT")

    def among(self, connection: Connection, asked: RowQuery) -> list[Row]:
        return _fetched(_asked(_raw(connection), asked, prepare=None)) if asked.keys else []


class BatchTransaction:
    """The transaction of a batch: it reads what the batch asks for, and takes numbers for it."""

    def __init__(self, raw: psycopg.Connection[Any], way: AttemptLocks) -> None:
        self._raw, self._way = raw, way
        self._next: int | None = None
        self._end = 0

    def fetch(self, asks: Sequence[RowQuery]) -> list[list[Row]]:
        """Answer asks in one exchange. The first call also begins the transaction."""
        number = None
        with self._raw.pipeline():
            if self._next is None:
                # psycopg would wait for the answer to a BEGIN of its own.
                self._raw.execute(b"BEGIN")
                kind = "pg_advisory_xact_lock" if self._way.alone else "pg_advisory_xact_lock_shared"
                self._raw.execute(_lock(kind, _WRITING) + _KEEP_PLANS)
            found = [_asked(self._raw, ask, self._way.holds) if ask.keys else None for ask in asks]
            if self._next is None:
                # Take numbers after the read: of two batches that change the same row, the later has the higher ones.
                number = self._raw.execute(_NUMBER)
        if number:
            self._next = _fetched(number)[0][0]
            self._end = self._next + NUMBERS
        return [_fetched(one) if one else [] for one in found]

    def next_seq(self) -> int:
        """Return a fresh number."""
        if self._next is None or self._next == self._end:
            raise RuntimeError("a batch has more entries than it takes numbers, or has not begun")
        self._next += 1
        return self._next - 1


_COLLISIONS = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
)
_LOST = ("08", "57")
"""The classes of SQLSTATE for a missing connection, and for one that the server ended."""


def _lock(kind: str, number: int) -> bytes:
    return f"SELECT {kind}({number}, 'store'::regclass::oid::int4)".encode()


_KEEP_PLANS = "".join(f", set_config('{name}', '{value}', true)" for name, value in _KEPT_PLANS.items()).encode()
"""The rest of a SELECT that sets `_KEPT_PLANS` for one transaction."""


def _asked(
    raw: psycopg.Connection[Any], ask: RowQuery, holds: bool = False, prepare: bool | None = True
) -> psycopg.Cursor[Row]:
    """Send an ask.

    prepare: True prepares the statement at once, which takes an exchange of its own outside of a pipeline. None leaves
    it to psycopg, which prepares a statement that was sent several times.
    """
    key, wanted = ask.key, list(ask.keys)
    kind = _TYPES[type(ask.table.c[key].type).__name__]
    among, values = f"{key} = ANY(%b)", [array(kind, wanted)]
    if key == "code":
        among = f"left(code, {HEAD}) = ANY(%b) AND {among}"
        values = [array(kind, [code[:HEAD] for code in wanted]), *values]
    held = f" ORDER BY {key} FOR NO KEY UPDATE" if holds and ask.changing else ""
    statement = f"SELECT {', '.join(ask.columns)} FROM {ask.table.name} WHERE {among} AND {ask.where}{held}"
    return raw.execute(statement.encode(), values, prepare=prepare)


def _fetched(cursor: psycopg.Cursor[Row]) -> list[Row]:
    return cursor.fetchall()


def _may_wait(added: Added) -> bool:
    """True if one of the rows may have the unique key of a row that another process is just storing."""
    table, _, columns = added
    return table not in _FREE or GUARD in columns


def _inserted(added: Added) -> bytes:
    """Return the statement that appends a few rows by VALUES."""
    table, rows, columns = added
    marks = ", ".join([f"({', '.join(['%b'] * len(columns))})"] * len(rows))
    return f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {marks}".encode()


def _arrays(table: Table, rows: Sequence[Row], columns: Sequence[str]) -> tuple[str, list[Array]]:
    """Return the columns of a SELECT that yields the rows, and its parameters."""
    types = [_TYPES[type(table.c[name].type).__name__] if name != GUARD else "int8" for name in columns]
    values = [array(kind, column) for kind, column in zip(types, zip(*rows, strict=True), strict=True)]
    return ", ".join(f"unnest(%b) AS {name}" for name in columns), values


def _update(table: Table, columns: Sequence[str], arrays: str) -> bytes:
    """Return the statement that changes rows by their key. Its last parameter is the array of keys once more."""
    key, *others = columns
    sets = ", ".join(f"{name} = new.{name}" for name in others)
    by_key = f"{table.name}.{key} = new.{key} AND {table.name}.{key} = ANY(%b)"
    return f"UPDATE {table.name} SET {sets} FROM (SELECT {arrays}) AS new WHERE {by_key}".encode()


_TYPES = {"Text": "text", "BigInteger": "int8", "Integer": "int8", "DateTime": "timestamptz"}
_NUMBER = b"SELECT nextval('resource_seq')"


def _raw(connection: Connection) -> psycopg.Connection[Any]:
    """Return the psycopg connection below a SQLAlchemy one."""
    raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    return raw
