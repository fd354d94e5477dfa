"""Every feed through every stage, then the reports: what Dagster shows and runs. `workspace.yaml` names this module.

Only puts together what `pipelines.orchestration` defines, for the feeds and the home that the environment names.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from pipelines.feeds.catalog import load_feeds
from pipelines.orchestration.command_line import telling_sensor
from pipelines.orchestration.imports import import_assets, import_job
from pipelines.orchestration.inbox import inbox_sensor
from pipelines.orchestration.reports import publishing_sensor, report_assets, report_schedule, reports_job
from pipelines.orchestration.workplace import RESOURCE_KEY, workplace_resource
from pipelines.session import feed_folders_of


def build_definitions(environ: Mapping[str, str]) -> dg.Definitions:
    """The definitions over the feeds and the home (`CHARTFERRY_HOME`, else `var`) of an environment. FeedError."""
    home = Path(environ.get("CHARTFERRY_HOME") or "var").resolve()
    catalog = load_feeds(feed_folders_of(home, environ))
    assets = [asset for feed in catalog.feeds for asset in import_assets(feed)]
    imports, refresh = [import_job(feed) for feed in catalog.feeds], reports_job()
    return dg.Definitions(
        assets=[*assets, *report_assets(catalog.feeds, environ)],
        jobs=[*imports, refresh],
        sensors=[
            inbox_sensor(home, catalog, imports),
            telling_sensor(home, environ, catalog, imports),
            publishing_sensor(),
        ],
        schedules=[report_schedule(refresh, environ)],
        resources={RESOURCE_KEY: workplace_resource(home, environ)},
        executor=dg.in_process_executor,
    )


os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
defs = build_definitions(os.environ)
