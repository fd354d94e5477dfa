"""Dagster's events in SQLite: stored together they are what they are one by one, for a bounded number of commits."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent, DagsterEventBatchMetadata
from dagster._core.storage import sql
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._core.test_utils import create_run_for_test

from pipelines.dagster.dagster_storage import SqliteEventsTogether, SqliteStorage, engine_of
from pipelines.dagster.requests import RANGE
from pipelines.home.dagster_folder import dagster_environment, prepare_dagster_home

ASSETS = [dg.AssetKey(["payments", stage]) for stage in ("received", "validated", "loaded")]


@contextmanager
def instance_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance as the processes of `up` find it."""
    prepare_dagster_home(home)
    for name, value in dagster_environment(home, {}).items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as instance:
        yield instance


def plan(instance: dg.DagsterInstance, number: int) -> str:
    """Plans a run over so many partitions as Dagster does; gives the run."""
    run = create_run_for_test(instance, "import_payments")
    events = [
        DagsterEvent.build_asset_materialization_planned_event(
            "import_payments", "step", AssetMaterializationPlannedData(asset, partition=f"payments-{place}")
        )
        for asset in ASSETS
        for place in range(number)
    ]
    for place, event in enumerate(events):
        last = DagsterEventBatchMetadata(run.run_id, place == len(events) - 1)
        instance.report_dagster_event(event, run.run_id, batch_metadata=last)
    return str(run.run_id)


def known_of(instance: dg.DagsterInstance, run_id: str) -> list[Any]:
    """Return what Dagster knows of the planned partitions, and the log of the run."""
    planned, storage = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, instance.event_log_storage
    log = [record.event_log_entry for record in storage.get_records_for_run(run_id, of_type=planned).records]
    events = [entry.get_dagster_event() for entry in log]
    by_asset = [sorted(storage.get_latest_storage_id_by_partition(asset, planned)) for asset in ASSETS]
    known = [instance.has_asset_key(asset) for asset in ASSETS]
    return [[(event.asset_key, event.partition) for event in events], by_asset, known]


def test_events_stored_in_bulk_equal_events_stored_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    with instance_of(tmp_path / "home", monkeypatch) as instance:
        assert isinstance(instance.event_log_storage, SqliteEventsTogether)
        together = known_of(instance, plan(instance, 5))
        monkeypatch.setattr(SqliteEventsTogether, "store_event_batch", one_by_one)
        (tmp_path / "other").mkdir()
    with instance_of(tmp_path / "other", monkeypatch) as instance:
        assert known_of(instance, plan(instance, 5)) == together
    assert len(together[0]) == 15
    assert together[2] == [True] * 3


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
def test_a_run_over_many_partitions_is_known_with_their_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, names = dg.DynamicPartitionsDefinition(name="batches"), [f"b{number}" for number in range(7)]

    @dg.asset(partitions_def=batches, backfill_policy=dg.BackfillPolicy.single_run())
    def received(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        for name in context.partition_keys:
            context.add_asset_metadata({"name": name}, partition_key=name)
        return dg.MaterializeResult()

    ends = dict(zip(RANGE, (names[0], names[-1]), strict=True))
    with instance_of(tmp_path, monkeypatch) as instance:
        instance.add_dynamic_partitions("batches", names)
        assert dg.materialize([received], instance=instance, tags=ends).success
        assert instance.get_materialized_partitions(received.key) == set(names)
        found = instance.fetch_materializations(received.key, limit=10).records
        events = [each.asset_materialization for each in found if each.asset_materialization]
        assert {each.partition: each.metadata["name"].value for each in events} == {name: name for name in names}
        newest = instance.get_latest_materialization_event(received.key)
        assert newest
        assert newest.run_id == found[0].run_id


def one_by_one(storage: SqliteEventsTogether, events: Sequence[Any]) -> None:
    for event in events:
        storage.store_event(event)


def test_the_databases_are_opened_as_often_for_many_files_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    connect = SqliteEventsTogether._connect

    def noted(storage: SqliteEventsTogether, shard: str) -> Any:
        opened.append(shard)
        return connect(storage, shard)

    with instance_of(tmp_path, monkeypatch) as instance:
        plan(instance, 1)
        monkeypatch.setattr(SqliteEventsTogether, "_connect", noted)
        took = []
        for number in (50, 200):
            opened.clear()
            plan(instance, number)
            took.append(len(opened))
    assert took[0] == took[1]


def test_a_process_checks_a_database_once_and_has_one_engine_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []
    look = sql.check_alembic_revision

    def noted(*args: Any) -> Any:
        checked.append(args)
        return look(*args)

    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        monkeypatch.setattr(module, "check_alembic_revision", noted)
    engines, times = [], []
    for _ in range(3):
        with instance_of(tmp_path, monkeypatch) as instance:
            assert (instance.get_runs(), instance.all_instigator_state(), instance.get_asset_keys()) == ([], [], [])
            engines.append(engine_of(instance.run_storage._conn_string))  # type: ignore[attr-defined]
        times.append(len(checked))
    assert times == times[:1] * 3
    assert len({id(engine) for engine in engines}) == 1


def test_a_database_that_was_removed_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with instance_of(tmp_path, monkeypatch) as instance:
            plan(instance, 1)
            assert len(instance.get_runs()) == 1
        shutil.rmtree(tmp_path / "dagster")


def test_a_storage_that_dagster_made_by_itself_is_read_on(tmp_path: Path) -> None:
    before = DagsterSqliteStorage.from_local(str(tmp_path))
    after = SqliteStorage.from_local(str(tmp_path))
    assert isinstance(before.event_log_storage, type(after.event_log_storage).__mro__[1])
    assert after.event_log_storage._base_dir == before.event_log_storage._base_dir  # type: ignore[attr-defined]
    for kept in ("run_storage", "schedule_storage"):
        assert getattr(after, kept)._conn_string == getattr(before, kept)._conn_string
