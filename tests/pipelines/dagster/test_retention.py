"""Old runs are deleted, and what the partitions and assets are in stays known."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from pipelines.dagster.retention import delete_old
from pipelines.home.dagster_folder import BATCH_TAG, prepare_dagster_home

BATCHES = dg.DynamicPartitionsDefinition(name="payments batches")


@dg.asset(partitions_def=BATCHES)
def loaded(context: dg.AssetExecutionContext) -> None:
    if "fails" in context.run.tags:
        raise dg.Failure("no luck")


@dg.asset
def published() -> None:
    """Nothing."""


def run(instance: dg.DagsterInstance, batch: str | None, **tags: str) -> str:
    asset, about = (loaded, {BATCH_TAG: batch, **tags}) if batch else (published, tags)
    done = dg.materialize([asset], instance=instance, partition_key=batch, tags=about, raise_on_error=False)
    return done.run_id


def test_old_runs_are_deleted_with_their_files_unless_a_state_depends_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_dagster_home(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        instance.add_dynamic_partitions("payments batches", ["a", "b", "c"])
        first = {batch: run(instance, batch) for batch in "abc"}
        again, failed = run(instance, "a"), run(instance, "b", fails="yes")
        old, new = run(instance, None), run(instance, None)
        by_hand = dg.materialize([loaded], instance=instance, partition_key="c").run_id
        time.sleep(0.01)
        assert delete_old(instance, datetime.now(UTC) - timedelta(days=1), instance.all_asset_keys()) == 0
        done = delete_old(instance, datetime.now(UTC) + timedelta(seconds=1), instance.all_asset_keys())
        left = {record.dagster_run.run_id for record in instance.get_run_records()}
        assert done == 8 - len(left)
        needed = {again, failed, first["b"], first["c"], new, by_hand}
        assert left == needed | {first["a"]}, "the last run of a page stays for another night"
        assert instance.get_materialized_partitions(loaded.key) == {"a", "b", "c"}
        assert not list(folder.rglob(f"{old}*"))
        assert instance.get_latest_materialization_event(published.key)
