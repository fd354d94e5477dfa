"""A SQLite storage for Dagster that stores the asset events of one batch together; `dagster.yaml` names it.

A run over 200 files plans 600 asset partitions, each as one event. Dagster's own SQLite storage opens, writes and
commits two databases for each event, which takes most of a minute on a slow disk.
"""

from collections.abc import Sequence
from typing import Any

from dagster import DagsterEventType
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData

TOGETHER = (DagsterEventType.ASSET_MATERIALIZATION_PLANNED, DagsterEventType.ASSET_MATERIALIZATION)


class SqliteEventsTogether(SqliteEventLogStorage):
    """Event storage in SQLite that writes a batch of asset events in one transaction for each of the two databases."""

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
    """Dagster's storage in SQLite, in its usual folders, with `SqliteEventsTogether` for the events."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = SqliteEventsTogether(self._event_log_storage._base_dir)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "SqliteStorage":
        """Return the storage that `dagster.yaml` describes."""
        return cls.from_local(inst_data=inst_data, **config_value)
