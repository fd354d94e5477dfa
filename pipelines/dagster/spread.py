"""The imports of all feeds, by the executor that the environment asks for."""

from collections.abc import Mapping, Sequence

import dagster as dg

from pipelines.dagster.executors import executor_of
from pipelines.dagster.imports import import_assets, import_job
from pipelines.dagster.names import Job, Names
from pipelines.feeds.files.catalog import Feed


def imports_of(
    names: Names, feeds: Sequence[Feed], environ: Mapping[str, str], before: Sequence[dg.AssetKey]
) -> tuple[list[dg.AssetsDefinition], list[Job]]:
    """Return the assets of feeds, and the jobs that import them. before: assets with the data that rules look up."""
    executor = executor_of(environ)
    assets = [asset for feed in feeds for asset in import_assets(names, feed, before, executor is not None)]
    return assets, [import_job(names, feed, executor) for feed in feeds]
