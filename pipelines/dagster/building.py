"""The Dagster definitions of a home: assets, checks, jobs, sensors and schedules for its feeds."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.dagster.imports import imports_of
from pipelines.dagster.names import DagsterNames
from pipelines.dagster.publishing import SCHEDULE, cron_of, report_jobs
from pipelines.dagster.queries import query_job
from pipelines.dagster.reference import JOB, reference_asset
from pipelines.dagster.reports.assets import report_assets
from pipelines.dagster.retention import retention_job
from pipelines.dagster.run_resource import RESOURCE_KEY, workplace_resource
from pipelines.dagster.sensors import sensors_of
from pipelines.dagster.standing.sensor import standing_check
from pipelines.feeds.files.catalog import home_catalog
from pipelines.session.bundled import is_bundled


def build(
    home: Path | str, feeds: Sequence[Path | str] = (), environ: Mapping[str, str] | None = None
) -> dg.Definitions:
    """Return the definitions of a home, to be merged into those of another Dagster project. Raises FeedError.

    They name no executor: the project's own is used. Stages hand over files on disk, so any executor on this machine
    works.

    Args:
        home: the state folder.
        feeds: folders with further feed files, besides `CHARTFERRY_FEEDS` and the home's own.
        environ: names the target and the settings; by default the environment of the process.
    """
    settings = dict(os.environ if environ is None else environ)
    folders = [*map(str, feeds), *filter(None, [settings.get("CHARTFERRY_FEEDS")])]
    settings |= {"CHARTFERRY_HOME": str(home)} | ({"CHARTFERRY_FEEDS": os.pathsep.join(folders)} if folders else {})
    return build_definitions(settings, executor=None)


def build_definitions(
    environ: Mapping[str, str], executor: dg.ExecutorDefinition | None = dg.in_process_executor
) -> dg.Definitions:
    """Return the definitions for the feeds and the home (`CHARTFERRY_HOME`, else `var`). Raises FeedError."""
    home = Path(environ.get("CHARTFERRY_HOME") or "var").resolve()
    catalog = home_catalog(home, environ)
    bundled, names = is_bundled(environ), DagsterNames.of(environ)
    before = [names.reference] if bundled else []
    assets, imports = imports_of(names, catalog.feeds, environ, before)
    publication, refresh = report_jobs(names)
    loads = "Loads new reference data from `reference`."
    own = [names.job_over(names.job(JOB), before, loads)] if bundled else []
    retention = retention_job(environ)
    queries = [query_job(names, feed) for feed in catalog.feeds if feed.file.query]
    return dg.Definitions(
        assets=[*([reference_asset(names)] if bundled else []), *assets, *report_assets(catalog.feeds, environ, home)],
        asset_checks=[standing_check(names, catalog.feeds)],
        jobs=[*own, *imports, *queries, refresh, publication, retention],
        sensors=sensors_of(home, environ, catalog, imports, own, (publication, refresh)),
        schedules=[
            *(_schedule(job, "5 * * * *", "Asks the database for new rows every hour.") for job in queries),
            _schedule(refresh, cron_of(environ), f"Sweeps and publishes every hour, or as {SCHEDULE} says."),
            _schedule(retention, "15 3 * * *", "Deletes old runs every night."),
        ],
        resources={RESOURCE_KEY: workplace_resource(home, environ)},
        executor=executor,
    )


def _schedule(job: Any, cron: str, says: str) -> dg.ScheduleDefinition:
    """Return the schedule of a job. It is on by default."""
    running = dg.DefaultScheduleStatus.RUNNING
    return dg.ScheduleDefinition(name=job.name, job=job, cron_schedule=cron, default_status=running, description=says)
