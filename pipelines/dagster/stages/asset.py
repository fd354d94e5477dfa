"""The settings that the three assets of a feed share."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import dagster as dg

from pipelines.dagster.names import Names
from pipelines.dagster.schemas import accepted_schema, ledger_schema, source_schema
from pipelines.dagster.workplace import RESOURCE_KEY
from pipelines.feeds.files.catalog import Feed, plain
from pipelines.runs.manifest import rules_version, software_version

SCHEMAS: Mapping[str, Callable[[Feed], dg.TableSchema]] = {
    "received": source_schema,
    "validated": lambda _: accepted_schema(),
    "loaded": lambda _: ledger_schema(),
}
OWNERS = ["team:data-engineering"]


def stage_asset(
    names: Names, feed: Feed, stage: str, description: str, **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return the decorator for an asset of a feed, with the settings that all three share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of the backfill policy: one run for all batches
        decorator = dg.asset(
            key=names.keys_of(feed)[stage],
            metadata={"dagster/column_schema": SCHEMAS[stage](feed)},
            description=description,
            code_version=_version(feed, stage),
            partitions_def=names.batches_of(feed),
            backfill_policy=dg.BackfillPolicy.single_run(),
            group_name=plain(feed.name),
            owners=OWNERS,
            required_resource_keys={RESOURCE_KEY},
            tags={"chartferry/source": plain(feed.source), "chartferry/resource": feed.resource},
            **more,
        )
    return cast("Callable[[Callable[..., Any]], dg.AssetsDefinition]", decorator)


def _version(feed: Feed, stage: str) -> str:
    """Return the version of the code: that of what is validated is also of the rules and the feed."""
    return f"{software_version()}+{rules_version()}+{feed.hash[:12]}" if stage == "validated" else software_version()
