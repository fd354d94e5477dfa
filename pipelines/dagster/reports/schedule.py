"""The schedule of sweep and publication, and the policy by which published tables count as late."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import dagster as dg
from dagster._utils.schedules import cron_string_iterator

from pipelines.dagster.names import Job, Names
from pipelines.dagster.tables import GROUP, REFRESH

SCHEDULE = "CHARTFERRY_REPORTS_SCHEDULE"
EVERY_HOUR = "0 * * * *"


def cron_of(environ: Mapping[str, str]) -> str:
    """Return the cron line by which reports are swept and published."""
    return environ.get(SCHEDULE) or EVERY_HOUR


def freshness(environ: Mapping[str, str]) -> dg.FreshnessPolicy:
    """Return the policy: late after the schedule's longest gap and half an hour, overdue after twice that time.

    The gap is the longest among the next 100 runs of the schedule.
    """
    ticks = cron_string_iterator(datetime.now(UTC).timestamp(), cron_of(environ), "UTC")
    gap = max(after - before for before, after in pairwise(islice(ticks, 100)))
    return dg.FreshnessPolicy.time_window(2 * gap + timedelta(hours=1), gap + timedelta(minutes=30))


def reports_job(names: Names) -> Job:
    return dg.define_asset_job(
        names.job(REFRESH),
        selection=dg.AssetSelection.groups(GROUP),
        tags=names.tags,
        description="Sweeps the reports and publishes the tables.",
    )
