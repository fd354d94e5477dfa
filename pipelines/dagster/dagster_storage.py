"""A SQLite storage for Dagster that repeats less work; `dagster.yaml` names it.

A run over 200 files plans 600 asset partitions, each as one event. Dagster's own SQLite storage opens, writes and
commits two databases for each event, which takes most of a minute on a slow disk. It also makes a new engine for each
query, which compiles every statement anew, and checks at each start of a sensor that its tables are up to date. Here
the events of one batch are stored together, and each process has one engine for each database.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from dagster import DagsterEventType, EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sqlite import create_db_conn_string
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine

from fhir_service.paths import exists

TOGETHER = (DagsterEventType.ASSET_MATERIALIZATION_PLANNED, DagsterEventType.ASSET_MATERIALIZATION)
BUSY_SECONDS = 30
"""Seconds that a writer waits for others, as in Dagster's own storage."""
ENGINES = 32
"""The number of databases whose engines a process keeps: each run has a database of its own."""
CONNECTIONS = 4
"""The number of connections that a process keeps open to a database that it queries often.

Opening and closing one takes longer than most queries: SQLite reads the whole schema, and checkpoints its log when the
last connection closes.
"""

_made: set[Path] = set()
"""The database files that this process has made, or has checked to be up to date."""


@lru_cache(ENGINES)
def engine_of(address: str, keeps: bool = True) -> Engine:
    """Return the engine of a database.

    Args:
        address: the URL of the database.
        keeps: False to close each connection after its use, as for the many databases of single runs.
    """
    given: dict[str, Any] = {"timeout": BUSY_SECONDS}
    if not keeps:
        return create_engine(address, poolclass=NullPool, connect_args=given)
    given["check_same_thread"] = False  # one thread at a time has a connection, not always the same one
    return create_engine(
        address, poolclass=QueuePool, pool_size=CONNECTIONS, max_overflow=-1, pool_use_lifo=True, connect_args=given
    )


def is_made(path: Path) -> bool:
    """True if this process made or checked the database, and its file was not removed since."""
    return path in _made and exists(path)


class _OneEngine:
    """A SQLite storage with one engine."""

    _conn_string: str

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with engine_of(self._conn_string).begin() as connection:
            yield connection


class SqliteRuns(_OneEngine, SqliteRunStorage):
    """The storage of runs."""


class SqliteSchedules(_OneEngine, SqliteScheduleStorage):
    """The storage of schedules, sensors and their ticks."""


class SqliteEventsTogether(SqliteEventLogStorage):
    """The storage of events. A batch of asset events is written in one transaction for each of the two databases."""

    def has_table(self, table_name: str) -> bool:
        engine = engine_of(self.conn_string_for_shard(INDEX_SHARD_NAME))
        with engine.connect() as connection:
            return bool(engine.dialect.has_table(connection, table_name))

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        keeps = shard == INDEX_SHARD_NAME
        engine, path = engine_of(self.conn_string_for_shard(shard), keeps), Path(self.path_for_shard(shard))
        with self._db_lock:
            if not is_made(path):
                engine.dispose()  # open connections belong to a file that was removed
                self._initdb(engine)
                _made.add(path)
            with engine.begin() as connection:
                yield connection

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store a batch of events, with the rows that `store_event` would write for each."""
        of_assets = [event for event in events if event.is_dagster_event and event.dagster_event_type in TOGETHER]
        for run_id in {event.run_id for event in of_assets}:
            self._store_together(run_id, [event for event in of_assets if event.run_id == run_id])
        for event in events:
            if event not in of_assets:
                self.store_event(event)

    def _store_together(self, run_id: str, events: Sequence[EventLogEntry]) -> None:
        rows = [self._event_to_row(event) for event in events]
        insert = SqlEventLogStorageTable.insert()
        with self.index_transaction() as index:
            ids = [index.execute(insert, row).lastrowid for row in rows]
            self._store_asset_event_tags(index, events, ids)
            # The asset's row holds its newest event of each type: earlier ones would be overwritten at once.
            newest = {_about(event): (event, event_id) for event, event_id in zip(events, ids, strict=True)}
            for event, event_id in newest.values():
                self._store_asset_event(index, event, event_id)
        with self.run_connection(run_id) as log:
            log.execute(insert, rows)


def _about(event: EventLogEntry) -> tuple[Any, Any]:
    """Return the asset and the type of an event."""
    return event.get_dagster_event().asset_key, event.dagster_event_type


class SqliteStorage(DagsterSqliteStorage):
    """Dagster's storage in SQLite, in its usual folders, with one engine for each database."""

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self.base_dir, self._inst_data = base_dir, inst_data
        self._run_storage = _opened(SqliteRuns, f"{base_dir}/history", "runs")
        self._event_log_storage = SqliteEventsTogether(f"{base_dir}/history/runs")
        self._schedule_storage = _opened(SqliteSchedules, f"{base_dir}/schedules", "schedules")
        super(DagsterSqliteStorage, self).__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "SqliteStorage":
        """Return the storage that `dagster.yaml` describes."""
        return cls.from_local(inst_data=inst_data, **config_value)


def _opened(kind: Any, folder: str, name: str) -> Any:
    """Return a storage over a database. Its tables are made or checked when this process first opens it."""
    path = Path(folder).resolve() / f"{name}.db"
    address = create_db_conn_string(folder, name)
    if is_made(path):
        return kind(address)
    engine_of(address).dispose()  # open connections belong to a file that was removed
    found = kind.from_local(folder)
    _made.add(path)
    return found
