"""The settings that the three assets of a feed share."""

import warnings
from collections.abc import Callable, Mapping, Sequence
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
            tags=_tags(feed),
            **more,
        )
    return cast("Callable[[Callable[..., Any]], dg.AssetsDefinition]", decorator)


def loaded_asset(
    names: Names,
    feed: Feed,
    graph: dg.GraphDefinition,
    description: str,
    kind: str,
    checks: Sequence[dg.AssetCheckSpec],
) -> dg.AssetsDefinition:
    """Return the asset `loaded` of a feed, which the steps of a graph make: from `validated`, as its `result`."""
    keys = names.keys_of(feed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.AssetsDefinition.from_graph(
            graph,
            keys_by_input_name={"validated": keys["validated"]},
            keys_by_output_name={"result": keys["loaded"]},
            partitions_def=names.batches_of(feed),
            group_name=plain(feed.name),
            descriptions_by_output_name={"result": description},
            metadata_by_output_name={"result": {"dagster/column_schema": SCHEMAS["loaded"](feed)}},
            tags_by_output_name={"result": {**_tags(feed), f"dagster/kind/{kind}": ""}},
            backfill_policy=dg.BackfillPolicy.single_run(),
            check_specs=checks,
            owners_by_output_name={"result": OWNERS},
            code_versions_by_output_name={"result": _version(feed, "loaded")},
        )


def _tags(feed: Feed) -> dict[str, str]:
    return {"chartferry/source": plain(feed.source), "chartferry/resource": feed.resource}


def _version(feed: Feed, stage: str) -> str:
    """Return the version of the code: that of what is validated is also of the rules and the feed."""
    return f"{software_version()}+{rules_version()}+{feed.hash[:12]}" if stage == "validated" else software_version()
