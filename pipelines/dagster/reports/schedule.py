"""The schedule of sweep and publication, and the policy by which published tables count as late."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import dagster as dg

from pipelines.dagster.names import Job, Names
from pipelines.dagster.tables import GROUP, REFRESH

SCHEDULE = "CHARTFERRY_REPORTS_SCHEDULE"
EVERY_HOUR = "0 * * * *"
RUNS_AHEAD, FORM = 100, "%Y-%m-%dT%H:%M:%S"


def cron_of(environ: Mapping[str, str]) -> str:
    """Return the cron line by which reports are swept and published."""
    return environ.get(SCHEDULE) or EVERY_HOUR


def freshness(environ: Mapping[str, str]) -> dg.FreshnessPolicy:
    """Return the policy: late after the schedule's longest gap and half an hour, overdue after twice that time.

    The gap is the longest among the next runs of the schedule: the windows between these are what Dagster counts.
    """
    now = datetime.now(UTC)
    ahead = dg.TimeWindowPartitionsDefinition(now, FORM, cron_schedule=cron_of(environ), end_offset=RUNS_AHEAD)
    ticks = [datetime.strptime(key, FORM).replace(tzinfo=UTC) for key in ahead.get_partition_keys(now)]
    gap = max(after - before for before, after in pairwise(ticks))
    return dg.FreshnessPolicy.time_window(2 * gap + timedelta(hours=1), gap + timedelta(minutes=30))


def reports_job(names: Names) -> Job:
    return dg.define_asset_job(
        names.job(REFRESH),
        selection=dg.AssetSelection.groups(GROUP),
        tags=names.tags,
        description="Sweeps the reports and publishes the tables.",
    )
