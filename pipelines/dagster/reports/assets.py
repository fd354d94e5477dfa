"""The assets of the reports: the sweep of the target's diagnostic reports, and the published tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import dagster as dg

from pipelines.dagster.names import DagsterNames
from pipelines.dagster.publishing import freshness
from pipelines.dagster.reports.published import published_assets
from pipelines.dagster.reports.sweep import sweep_asset
from pipelines.feeds.files.catalog import Feed
from pipelines.reports.tables import readable_tables
from pipelines.session.bundled import is_bundled


def report_assets(feeds: Sequence[Feed], environ: Mapping[str, str], home: Path) -> list[dg.AssetsDefinition]:
    """Return the asset of the sweep, and the assets of the published file and its tables, which one step makes."""
    tables, fresh, names = readable_tables(home), freshness(environ), DagsterNames.of(environ)
    before = [names.reference] if is_bundled(environ) else []
    return [sweep_asset(names, before), published_assets(names, tables, feeds, fresh)]
