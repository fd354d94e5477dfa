"""The assets of the published tables, which one step makes."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from pipelines.dagster import metadata
from pipelines.dagster.names import AGAIN, DagsterNames
from pipelines.dagster.reports.publication import publish_kept
from pipelines.dagster.reports.publication_metadata import of_publication, tables_agree, tables_agree_spec
from pipelines.dagster.run_resource import RESOURCE_KEY, workplace_of
from pipelines.dagster.standing.sensor import note_verdicts
from pipelines.dagster.tables import GROUP, OWNERS, table_checks, table_specs, told_of, untrue_of
from pipelines.feeds.files.catalog import Feed
from pipelines.reports.publication import PublicationError
from pipelines.reports.tables import ReportTable
from pipelines.runs.manifest import software_version
from pipelines.session.publishing import copy_out


def published_assets(
    names: DagsterNames, tables: Sequence[ReportTable], feeds: Sequence[Feed], fresh: dg.FreshnessPolicy
) -> dg.AssetsDefinition:
    loaded = [names.keys_of(feed)["loaded"] for feed in feeds]
    whole = dg.AssetSpec(
        names.published,
        deps=[names.sweep, *loaded, *(names.key(GROUP, table.name) for table in tables)],
        group_name=GROUP,
        owners=OWNERS,
        kinds={"duckdb", "parquet"},
        code_version=software_version(),
        description="`published/reports.duckdb`, its Parquet files and `report.html`: the target's reports and "
        "the record of the imports. After every import and on schedule, new ones are built beside the old ones, "
        "checked, and put in place in one step.",
        freshness_policy=fresh,
        metadata={"dagster/column_schema": metadata.schema([(t.name, "table", t.comment) for t in tables])},
    )

    @dg.multi_asset(
        name=names.job("published"),
        specs=[*table_specs(names, tables, loaded, fresh), whole],
        check_specs=[*table_checks(names, tables), tables_agree_spec(names)],
        required_resource_keys={RESOURCE_KEY},
        retry_policy=AGAIN,
    )
    def published(context: dg.AssetExecutionContext) -> Iterator[Any]:
        with workplace_of(context) as place:
            began = datetime.now(UTC)
            try:
                done, swept = publish_kept(place.session(context.log))
            except PublicationError as error:
                yield from untrue_of(names, tables, error)
                raise
            yield from told_of(names, tables, done, place.environ)
            seconds = (datetime.now(UTC) - began).total_seconds()
            yield dg.MaterializeResult(
                asset_key=names.published,
                metadata=of_publication(done, swept, seconds),
                check_results=[tables_agree(names, done, swept)],
            )
            note_verdicts(context.instance, place.home, place.environ, feeds)
            copy_out(place.session(context.log), done)

    return published
