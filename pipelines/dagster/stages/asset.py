"""The settings that the three assets of a feed share."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import dagster as dg

from pipelines.dagster import metadata
from pipelines.dagster.names import DagsterNames
from pipelines.dagster.run_resource import RESOURCE_KEY
from pipelines.feeds.files.catalog import Feed, plain
from pipelines.feeds.files.describe import describe
from pipelines.reports.tables import readable_tables
from pipelines.runs.manifest import rules_version, software_version
from pipelines.validation.tables import ACCEPTED

OWNERS = ["team:data-engineering"]


def stage_asset(
    names: DagsterNames, feed: Feed, stage: str, description: str, **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return the decorator for an asset of a feed, with the settings that all three share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of the backfill policy: one run for all batches
        decorator = dg.asset(
            key=names.keys_of(feed)[stage],
            metadata={"dagster/column_schema": _schema(feed, stage)},
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
    names: DagsterNames,
    feed: Feed,
    graph: dg.GraphDefinition,
    description: str,
    kind: str,
    checks: Sequence[dg.AssetCheckSpec],
) -> dg.AssetsDefinition:
    """Return the asset `loaded` of a feed, made by the steps of a graph: its output `result`, from `validated`."""
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
            metadata_by_output_name={"result": {"dagster/column_schema": _schema(feed, "loaded")}},
            tags_by_output_name={"result": {**_tags(feed), f"dagster/kind/{kind}": ""}},
            backfill_policy=dg.BackfillPolicy.single_run(),
            check_specs=checks,
            owners_by_output_name={"result": OWNERS},
            code_versions_by_output_name={"result": _version(feed, "loaded")},
        )


def _tags(feed: Feed) -> dict[str, str]:
    return {"chartferry/source": plain(feed.source), "chartferry/resource": feed.resource}


def _version(feed: Feed, stage: str) -> str:
    """Return the version of an asset's code. For `validated`, it includes the versions of the rules and the feed."""
    return f"{software_version()}+{rules_version()}+{feed.hash[:12]}" if stage == "validated" else software_version()


def _schema(feed: Feed, stage: str) -> dg.TableSchema:
    """Return the columns that the page of an asset shows.

    For `received`: the columns of an export, with the element that the feed makes of each. For `validated`: those of
    `accepted.parquet`. For `loaded`: those of the published table `import_row`, which describe a record in the ledger.
    """
    if stage == "received":
        return metadata.schema([(name, "string", f"{to}, from {origin}") for name, to, origin in describe(feed)])
    if stage == "validated":
        return metadata.schema([(each.name, str(each.type), _OF_ACCEPTED[each.name]) for each in ACCEPTED])
    rows = (table.columns for table in readable_tables() if table.name == "import_row")
    return metadata.schema([each[:3] for columns in rows for each in columns])


_OF_ACCEPTED = {
    "line": "First physical line of the record.",
    "lines": "Number of physical lines of the record.",
    "key": "The record's key in its source.",
    "lane": "Records of one lane are sent one after another.",
    "position": "Place in the order of sending.",
    "content_hash": "Hash of the mapped record.",
    "patient_id": "The patient's id at the target.",
    "source_at": "The record's time in its source.",
    "amount_cents": "Amount in cents.",
    "body": "The resource to send.",
}
