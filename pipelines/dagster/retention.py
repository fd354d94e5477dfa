"""The nightly job that deletes old runs from Dagster's storage, except those that hold the state of an asset.

Dagster forgets the materializations of a deleted run. So the newest successful run of every batch stays, and with it
the state of its partitions. The run of the newest materialization of every asset stays, too.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.dagster.names import ONE_HOME, DagsterNames
from pipelines.dagster.requests import ENDED
from pipelines.home.dagster_folder import BATCH_TAG

DAYS = "CHARTFERRY_RUN_DAYS"
USUAL_DAYS = 90.0
JOB = "retention"
RUNS_A_PAGE = 500
PARTITION_TAGS = ("dagster/partition", "dagster/asset_partition_range_start")


def retention_job(environ: Mapping[str, str]) -> dg.JobDefinition:
    days, names = float(environ.get(DAYS) or USUAL_DAYS), DagsterNames.of(environ)

    @dg.op(
        name=names.job("delete_old_runs"),
        description=f"Deletes runs that ended more than {days:g} days ago and hold no state.",
    )
    def delete_old_runs(context: dg.OpExecutionContext) -> None:
        before = datetime.now(UTC) - timedelta(days=days)
        assets = list(context.instance.all_asset_keys())
        done = delete_old(context.instance, before, assets, context.run_id, names)
        context.log.info("%s runs were deleted", f"{done:,}")
        context.add_output_metadata({"runs_deleted": done})

    @dg.job(
        name=names.job(JOB),
        tags=names.tags,
        description=f"Deletes runs that ended more than {days:g} days ago ({DAYS} sets the number of days).",
    )
    def retention() -> None:
        delete_old_runs()

    return retention


def delete_old(
    instance: dg.DagsterInstance,
    before: datetime,
    assets: Sequence[dg.AssetKey],
    own: str | None = None,
    names: DagsterNames = ONE_HOME,
) -> int:
    """Delete the runs that ended before `before` and hold no state; return how many.

    own: a run to keep. names: those of the home whose runs these are.
    """
    kept = _last_words(instance, assets) | {own}
    ours = dg.RunsFilter(statuses=ENDED, tags=names.own_runs)
    seen: set[str] = set()
    done, cursor = 0, None
    while page := instance.get_run_records(ours, limit=RUNS_A_PAGE, cursor=cursor):
        cursor = page[-1].dagster_run.run_id
        old = []
        for record in page:
            run = record.dagster_run
            needed = run.run_id in kept or _holds_partitions(run, seen)
            if not needed and (record.end_time or 0) < before.timestamp():
                old.append(run.run_id)
        # The next page begins after the last run of this one, so that run must exist: it is kept for another night.
        done += sum(_delete(instance, run_id) for run_id in old if run_id != cursor)
    return done


def _last_words(instance: dg.DagsterInstance, assets: Sequence[dg.AssetKey]) -> set[str | None]:
    """Return the runs of the newest materialization of each asset."""
    newest = (record.asset_entry.last_materialization_record for record in instance.get_asset_records(assets))
    return {record.run_id for record in newest if record}


def _holds_partitions(run: dg.DagsterRun, seen: set[str]) -> bool:
    """True if the run holds the state of a batch or partition. Call it from the newest run to the oldest.

    seen: batches with a newer successful run; a successful run adds its own.
    """
    batches = set(run.tags.get(BATCH_TAG, "").split())
    if not batches:
        return any(tag in run.tags for tag in PARTITION_TAGS)
    holds = bool(batches - seen)
    if run.status == dg.DagsterRunStatus.SUCCESS:
        seen |= batches
    return holds


def _delete(instance: dg.DagsterInstance, run_id: str) -> int:
    """Delete the run, its events, its logs, and the SQLite file of its events; return 1."""
    instance.delete_run(run_id)
    logs: Any = instance.compute_log_manager
    logs.delete_logs(prefix=[run_id])
    storage: Any = instance.event_log_storage
    storage = getattr(storage, "event_log_storage", storage)
    if hasattr(storage, "path_for_shard"):
        for path in (Path(storage.path_for_shard(run_id) + more) for more in ("", "-wal", "-shm")):
            path.unlink(missing_ok=True)
    return 1
