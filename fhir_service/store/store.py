"""The store: opening it, its version and id, reading from it. Writing is the writer's."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, func, insert, select

from fhir_service.store.dialects import Dialect, dialect_of
from fhir_service.store.tables import BODIES, SCHEMA_VERSION, STORE, metadata


class StoreVersion(Exception):
    """The store was made by another version of this software."""


class Store:
    """An open store. Its `id` is a UUID made with it, and moves with it."""

    def __init__(self, dialect: Dialect, engine: Engine) -> None:
        self.dialect = dialect
        self.engine = engine
        self.id = _prepared(engine)

    @classmethod
    def open(cls, url: str, memory_limit: str = "1GB", create: bool = True) -> "Store":
        """Opens a store, made when missing. Raises StoreBusy, StoreVersion, FileNotFoundError or OSError."""
        dialect = dialect_of(url, memory_limit)
        if not dialect.path.exists():
            if not create:
                raise FileNotFoundError(f"there is no store at {dialect.path}")
            dialect.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        engine = dialect.engine()
        shutil.rmtree(dialect.spill, ignore_errors=True)
        dialect.path.chmod(0o600)
        return cls(dialect, engine)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading, from any thread: it sees what is committed."""
        with self.engine.connect() as connection:
            yield connection

    def last_seq(self) -> int:
        """The highest number given to a stored resource so far."""
        with self.read() as connection:
            found = [connection.execute(select(func.max(table.c.seq))).scalar() for table in BODIES.values()]
        return max((seq for seq in found if seq is not None), default=0)

    def close(self) -> None:
        self.engine.dispose()


def _prepared(engine: Engine) -> str:
    """Makes the tables of a new store, checks the version of an old one; the store's id."""
    with engine.begin() as connection:
        if not inspect_has_store(connection):
            metadata.create_all(connection)
            rows = {"id": str(uuid.uuid4()), "schema_version": str(SCHEMA_VERSION)}
            connection.execute(insert(STORE), [{"name": name, "value": value} for name, value in rows.items()])
        found: dict[str, str] = {row.name: row.value for row in connection.execute(select(STORE))}
    if found["schema_version"] != str(SCHEMA_VERSION):
        raise StoreVersion(
            f"the store has schema version {found['schema_version']}, this software knows {SCHEMA_VERSION}: "
            "open it with the version of Chartferry that made it"
        )
    return found["id"]


def inspect_has_store(connection: Connection) -> bool:
    """Whether the database holds a store (reflection does not work on every dialect; this does)."""
    sql = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'store'"
    return bool(connection.exec_driver_sql(sql).scalar())
