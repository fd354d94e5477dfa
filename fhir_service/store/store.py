"""Open a store and read from it. Only the writer writes to it."""

import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import duckdb
from sqlalchemy import Connection, Engine, func, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.store.ahead import NAME as AHEAD
from fhir_service.store.ahead import Ahead, file_of
from fhir_service.store.dialect import Dialect
from fhir_service.store.dialects import DuckDb, dialect_of
from fhir_service.store.disk_errors import too_much, unavailable
from fhir_service.store.load_label import NAME as LABEL
from fhir_service.store.load_label import say_label
from fhir_service.store.migrations import migrate
from fhir_service.store.page_bytes import PageLanes
from fhir_service.store.read_limits import ReadTimeLimit
from fhir_service.store.tables import BODIES, PROBE, SCHEMA_VERSION, STORE

T = TypeVar("T")


class Store:
    """An open store. Its `id`, a UUID, and its key for signing addresses are made with it and move with it."""

    def __init__(self, dialect: Dialect, engine: Engine, create: bool = True, read_seconds: int = 30) -> None:
        self.dialect = dialect
        self.engine = engine
        self._patience = ReadTimeLimit(read_seconds)
        self.lanes = PageLanes(read_seconds)
        self._answering = dialect.answering(engine, read_seconds)
        self._readers = {
            (several, asked): dialect.reader(self._answering if asked else engine, several)
            for several in (True, False)
            for asked in (True, False)
        }
        self._looker = dialect.looker()
        facts = _prepared(dialect, engine, create)
        self.id = facts["id"]
        self.signing_key = bytes.fromhex(facts["signing_key"])
        self.load_label = facts[LABEL]
        self.ahead = self._recovered(dialect) if isinstance(dialect, DuckDb) else None
        self.catch_up: Callable[[], None] = lambda: None
        """Bring into the tables what is stored ahead of them. The writer sets it; readers of the tables call it."""
        self.in_turn: Callable[[Callable[[], object]], object] = lambda work: work()
        """Run a function while the tables have all that is stored, and nothing is written. The writer sets it."""

    def _recovered(self, dialect: DuckDb) -> Ahead:
        """Return the empty file ahead of the tables, after bringing into them what a crash left in it."""
        ahead = Ahead(file_of(dialect.path), self.signing_key, dialect)
        try:
            ahead.recover(self.engine)
        except duckdb.Error as error:
            raise OSError(
                f"the writes in {ahead.path} cannot be copied into the store: {type(error).__name__}"
            ) from None
        return ahead

    @classmethod
    def open(cls, url: str, memory_limit: str = "1GB", create: bool = True, read_seconds: int = 30) -> "Store":
        """Open a store. Raises StoreBusy, StoreVersion, FileNotFoundError or OSError.

        Args:
            create: make a missing store.
            read_seconds: the most seconds that a read of a request may take, and may wait for its turn.
        """
        dialect = dialect_of(url, memory_limit)
        engine = dialect.open(create)
        try:
            return cls(dialect, engine, create, read_seconds)
        except DBAPIError as error:
            engine.dispose()
            if dialect.undone(error):
                raise OSError(
                    "the store cannot be opened: there is no space left on its disk; free some, and start again"
                ) from None
            said = getattr(getattr(error.orig, "diag", None), "message_primary", None)
            raise OSError(f"the store cannot be made or read: {said or type(error.orig).__name__}") from None
        except BaseException:
            engine.dispose()
            raise

    @contextmanager
    def read(
        self, several: bool = True, creates: bool = True, asked: bool = False, sums: bool = False
    ) -> Iterator[Connection]:
        """Lend a connection for reading, in any thread. Raises the 503 of a database that cannot be reached.

        Args:
            several: False for a single statement, which is cheaper. Several statements see one state of the store.
            creates: False if the caller does not need what was created just now: it need not wait for the tables.
            asked: True for the read of a request: it is ended with a 503 if it takes too long.
            sums: True if the caller reads what accounts or charges have paid, which may be written late.
        """
        if creates:
            self.catch_up()
        try:
            with ExitStack() as stack:
                read = stack.enter_context(self._patience.read()) if asked else None
                connection = stack.enter_context(self._readers[several, asked].connect())
                if read:
                    stack.enter_context(read.ended_by(self.dialect.ending(connection)))
                if sums and self.ahead:
                    # The first statement fixes the state that all later ones see.
                    self.in_turn(lambda: connection.execute(select(STORE.c.name).limit(1)).all())
                yield connection
                if self.dialect.shared:
                    # A rollback would discard the statements that psycopg has prepared.
                    connection.commit()
        except Exception as error:
            if self.dialect.ended(error):
                raise too_much() from None
            if self.dialect.passing(error):
                raise unavailable(error) from None
            raise

    def lacks(self, ids: Iterable[str]) -> bool:
        """True if one of these ids may be stored ahead of the tables."""
        return self.ahead is not None and not self.ahead.ids.isdisjoint(ids)

    def look_up(self, work: Callable[[Connection], T], creates: bool = True, asked: bool = False) -> T:
        """Return the result of a function that executes one statement. Call it again if its connection was lost.

        Raises the 503 of a database that cannot be reached.

        Args:
            work: gets the connection.
            creates: see `read`.
            asked: see `read`.
        """
        engine = self._readers[False, True] if asked else self._looker
        if engine is None or not self.dialect.shared:
            with self.read(several=False, creates=creates, asked=asked) as connection:
                return work(connection)
        for _ in range(2):
            try:
                with self._patience.read() if asked else nullcontext(), engine.connect() as connection:
                    found = work(connection)
                    connection.commit()  # keeps prepared statements, see `read`
                    return found
            except Exception as error:
                if self.dialect.ended(error):
                    raise too_much() from None
                if not self.dialect.passing(error):
                    raise
                if isinstance(error, PoolTimeout):
                    raise unavailable(error) from None
                # The other connections of the pool are likely lost, too.
                engine.dispose()
        raise FhirError(UNAVAILABLE)

    def last_seq(self) -> int:
        """Return the highest number of a stored resource; 0 if there is none."""
        with self.read() as connection:
            found = [connection.execute(select(func.max(table.c.seq))).scalar() for table in BODIES.values()]
        return max((seq for seq in found if seq is not None), default=0)

    def say_label(self, path: Path | None) -> None:
        """Write the label of the newest load beside the file of the store; see `load_label`."""
        say_label(path, self.load_label)

    def close(self) -> None:
        """End all reads of requests, and close the database."""
        self._patience.close()
        if self._looker:
            self._looker.dispose()
        self._answering.dispose()
        self.engine.dispose()


def _prepared(dialect: Dialect, engine: Engine, create: bool) -> dict[str, str]:
    """Make a new store's tables, or migrate an old store. Return the rows of the table `store`."""
    with engine.begin() as connection:
        if not dialect.has_store(connection):
            if not create:
                raise FileNotFoundError("there is no store in the database")
            dialect.make_store(connection)
            _say(connection, {"id": str(uuid.uuid4()), "schema_version": str(SCHEMA_VERSION)})
        found: dict[str, str] = {row.name: row.value for row in connection.execute(select(STORE))}
        migrate(connection, dialect, int(found["schema_version"]))
        dialect.recognise(connection)
        made = {"signing_key": secrets.token_hex(32), PROBE: "", LABEL: "", AHEAD: "0"}
        if missing := {name: value for name, value in made.items() if name not in found}:
            found |= _say(connection, missing)
    return found


def _say(connection: Connection, rows: dict[str, str]) -> dict[str, str]:
    connection.execute(insert(STORE), [{"name": name, "value": value} for name, value in rows.items()])
    return rows
