"""The times of publications: by a schedule, after a sweep, and once the imports under way have ended.

The sensor requests the last kind. A publication holds the events that Dagster had before its run began, so anything
newer is news. An import that ended since then is news too, however it ended: a failed import may have loaded a part
without an event for an asset. So nothing is missed if an import ends during a publication, or soon after it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import dagster as dg

from pipelines.dagster.names import DagsterNames, Job
from pipelines.dagster.requests import ENDED, UNDER_WAY, ticking
from pipelines.dagster.tables import GROUP, PUBLISH, REFRESH
from pipelines.feeds.files.catalog import Feed

NAME = "publish_after_imports"
SECONDS_BETWEEN_LOOKS = 19
"""As for the inbox: this makes it every fourth time, 20 seconds apart."""
RUNS_A_PAGE = 100
SCHEDULE = "CHARTFERRY_REPORTS_SCHEDULE"
EVERY_HOUR = "0 * * * *"
RUNS_AHEAD, FORM = 100, "%Y-%m-%dT%H:%M:%S"


def cron_of(environ: Mapping[str, str]) -> str:
    """Return the cron line by which reports are swept and published."""
    return environ.get(SCHEDULE) or EVERY_HOUR


def freshness(environ: Mapping[str, str]) -> dg.FreshnessPolicy:
    """Return the policy: late after the schedule's longest gap and half an hour, overdue after twice that time.

    The gap is the longest among the next runs of the schedule, since Dagster counts the windows between them.
    """
    now = datetime.now(UTC)
    ahead = dg.TimeWindowPartitionsDefinition(now, FORM, cron_schedule=cron_of(environ), end_offset=RUNS_AHEAD)
    ticks = [datetime.strptime(key, FORM).replace(tzinfo=UTC) for key in ahead.get_partition_keys(now)]
    gap = max(after - before for before, after in pairwise(ticks))
    return dg.FreshnessPolicy.time_window(2 * gap + timedelta(hours=1), gap + timedelta(minutes=30))


def report_jobs(names: DagsterNames) -> tuple[Job, Job]:
    """Return the job that publishes the tables, and the job that sweeps the reports first."""
    swept = dg.AssetSelection.groups(GROUP)
    kept, says = swept - dg.AssetSelection.assets(names.sweep), "Sweeps the reports and publishes the tables."
    alone = "Publishes the tables from the ledger and the reports that the last sweep found."
    return names.job_over(names.job(PUBLISH), kept, alone), names.job_over(names.job(REFRESH), swept, says)


def publishing_sensor(
    names: DagsterNames, home: Path, feeds: Sequence[Feed], publication: Job, refresh: Job, imports: Sequence[Job]
) -> dg.SensorDefinition:
    """Return the sensor. imports: the jobs that must have ended, including those of reference data."""
    stages = [key for feed in feeds for key in names.keys_of(feed).values()]
    jobs, of_feeds = {job.name for job in (publication, refresh, *imports)}, {names.job_of(feed) for feed in feeds}

    says = (
        "Publishes the tables once the waiting imports have ended; sweeps the reports the first time, and after "
        "reference data was loaded."
    )

    @ticking(names, home, NAME, SECONDS_BETWEEN_LOOKS, says, [publication, refresh])
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        unswept = news(context.instance, names.sweep, [names.reference], is_due_at_first=True)
        told = news(context.instance, names.published, [names.sweep, *stages])
        ended = _ended_since(context.instance, names.published, of_feeds, stages)
        # A failed job is not requested again for the same news: the schedule makes the next try.
        job = publication if unswept is None or unswept == context.cursor else refresh
        if job is publication and told is None and ended is None:
            return dg.SensorResult(skip_reason="The tables hold all imports that Dagster knows of.")
        keys = {names.reference, names.sweep, names.published, *stages}
        if any(_is_of(run, jobs, keys) for run in context.instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY))):
            return dg.SensorResult(skip_reason="Imports or a publication are under way.")
        request = dg.RunRequest(f"{job.name} {unswept} {told} {ended}", job_name=job.name)
        return dg.SensorResult(run_requests=[request], cursor=unswept)

    return sensor


def news(
    instance: dg.DagsterInstance, made: dg.AssetKey, sources: Sequence[dg.AssetKey], is_due_at_first: bool = False
) -> str | None:
    """Return a name for the newest source that is not in an asset as it was last made; None if all are in it.

    is_due_at_first: True if an asset that was never made is due without any source.
    """
    found = {
        record.asset_entry.asset_key: record.asset_entry.last_materialization_record
        for record in instance.get_asset_records([made, *sources])
    }
    last, others = found.pop(made, None), [record for record in found.values() if record]
    if last:
        began = _began(instance, last.run_id, last.timestamp)
        others = [record for record in others if record.run_id != last.run_id and record.timestamp > began]
    newest = max((record.storage_id for record in others), default=None)
    if newest is None:
        return None if last or not is_due_at_first else "first"
    return str(newest)


def _began(instance: dg.DagsterInstance, run_id: str, made_at: float) -> float:
    """Return when a run began, in seconds since 1970. made_at: when it made an asset, used if its start is unknown.

    A time in the future was written while the clock was ahead. It counts as 0, since otherwise later events would be no
    news.
    """
    run = instance.get_run_record_by_id(run_id)
    began = run.start_time if run and run.start_time else made_at
    return began if began <= datetime.now(UTC).timestamp() else 0.0


def _ended_since(
    instance: dg.DagsterInstance, published: dg.AssetKey, jobs: Collection[str], keys: Collection[dg.AssetKey]
) -> str | None:
    """Return the id of the last import that ended after the last publication began; None if there is none."""
    last = instance.get_latest_materialization_event(published)
    began = _began(instance, last.run_id, last.timestamp) if last else 0.0
    since = dg.RunsFilter(statuses=ENDED, updated_after=datetime.fromtimestamp(began, UTC))
    runs = (run for page in _pages(instance, since) for run in page if _is_of(run.dagster_run, jobs, keys))
    ended = ((run.end_time or 0.0, run.dagster_run.run_id) for run in runs)
    return max((each for each in ended if each[0] > began), default=(0.0, None))[1]


def _pages(instance: dg.DagsterInstance, which: dg.RunsFilter) -> Iterator[Sequence[dg.RunRecord]]:
    """Yield all of these runs in pages, newest first. The run that ended last may have begun long before others."""
    cursor = None
    while page := instance.get_run_records(which, RUNS_A_PAGE, cursor=cursor):
        yield page
        cursor = page[-1].dagster_run.run_id


def _is_of(run: dg.DagsterRun, jobs: Collection[str], keys: Collection[dg.AssetKey]) -> bool:
    return run.job_name in jobs or not (run.asset_selection or set()).isdisjoint(keys)
