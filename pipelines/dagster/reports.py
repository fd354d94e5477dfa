"""The assets of the reports: the sweep of the target's diagnostic reports, and the published tables."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import duckdb
from dagster._utils.schedules import cron_string_iterator

from pipelines.corrections.retention import retain
from pipelines.dagster import metadata
from pipelines.dagster.names import AGAIN, keys_of
from pipelines.dagster.openlineage import is_told
from pipelines.dagster.pictures import charts_of
from pipelines.dagster.reference import REFERENCE, is_bundled
from pipelines.dagster.standing_check import note_verdicts
from pipelines.dagster.tables import (
    GROUP,
    OWNERS,
    PUBLISHED,
    REFRESH,
    SWEEP,
    table_checks,
    table_specs,
    told_of,
    untrue_of,
)
from pipelines.dagster.workplace import RESOURCE_KEY, place_of, told_without_data
from pipelines.feeds.files.catalog import Feed
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.ledger.states import OUTCOMES
from pipelines.reports.pages import SWEPT
from pipelines.reports.publish import Publication, PublicationError, publish
from pipelines.reports.sweep import Sweep, kept
from pipelines.reports.tables import ReportTable, readable_tables
from pipelines.runs.manifest import software_version
from pipelines.session.sweeping import sweep_target

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SCHEDULE = "CHARTFERRY_REPORTS_SCHEDULE"
EVERY_HOUR = "0 * * * *"

TOTALS_AGREE = dg.AssetCheckSpec(
    "the_pages_hold_what_the_total_says",
    asset=SWEEP,
    blocking=True,
    description="The sweep found as many different reports as the target counts.",
)
TABLES_AGREE = dg.AssetCheckSpec(
    "the_tables_agree_with_the_ledger",
    asset=PUBLISHED,
    blocking=True,
    description="Of every finished batch: records = accepted + rejected, accepted = the outcomes; and all batches and "
    "all reports are there. Read from the published file.",
)


def report_assets(feeds: Sequence[Feed], environ: Mapping[str, str], home: Path) -> list[dg.AssetsDefinition]:
    """Return the asset of the sweep, and the one step that makes the published file and all its tables."""
    tables, fresh = readable_tables(home), freshness(environ)
    return [_sweep([REFERENCE] if is_bundled(environ) else []), _published(tables, feeds, fresh)]


def _sweep(reference: Sequence[dg.AssetKey]) -> dg.AssetsDefinition:
    """Return the asset of the sweep. reference: the load of reference data, which may change the target's reports."""

    @dg.asset(
        key=SWEEP,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"fhir", "parquet"},
        code_version=software_version(),
        description="Every DiagnosticReport of the target as it is now, with when it changed or went. A full sweep: "
        "a watermark would lose late and corrected reports.",
        required_resource_keys={RESOURCE_KEY},
        check_specs=[TOTALS_AGREE],
        retry_policy=AGAIN,
        deps=reference,
        metadata={
            "dagster/column_schema": metadata.schema(
                [(each.name, str(each.type), OF_SWEPT[each.name]) for each in SWEPT]
            )
        },
    )
    def diagnostic_report_sweep(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        place = place_of(context)
        with told_without_data(place):
            swept = sweep_target(place.session(context.log))
            yield dg.MaterializeResult(metadata=_of_sweep(swept), check_results=[_pages_hold_the_total(swept)])

    return diagnostic_report_sweep


OF_SWEPT = {
    "report_id": "The report's id at the target.",
    "content_hash": "Hash of what is kept of it.",
    "body": "The report, without signed addresses.",
}


def _published(tables: Sequence[ReportTable], feeds: Sequence[Feed], fresh: dg.FreshnessPolicy) -> dg.AssetsDefinition:
    loaded = [keys_of(feed)["loaded"] for feed in feeds]
    whole = dg.AssetSpec(
        PUBLISHED,
        deps=[SWEEP, *loaded, *(dg.AssetKey([GROUP, table.name]) for table in tables)],
        group_name=GROUP,
        owners=OWNERS,
        kinds={"duckdb", "parquet"},
        code_version=software_version(),
        description="`published/reports.duckdb`, its Parquet files and `report.html`: the reports, and the record of "
        "the imports. Built beside the old ones, checked, and put in their place in one step; after every import and "
        "on schedule.",
        freshness_policy=fresh,
        metadata={"dagster/column_schema": metadata.schema([(t.name, "table", t.comment) for t in tables])},
    )

    @dg.multi_asset(
        name="published",
        specs=[*table_specs(tables, loaded, fresh), whole],
        check_specs=[*table_checks(tables), TABLES_AGREE],
        required_resource_keys={RESOURCE_KEY},
        retry_policy=AGAIN,
    )
    def published(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            session, began = place.session(context.log), datetime.now(UTC)
            swept = kept(session.home, session.target)
            if not swept.path.exists():
                swept = sweep_target(session)
            settle_resubmitted(session.ledger, session.target)
            try:
                done = publish(session.home, session.ledger, swept)
            except PublicationError as error:
                yield from untrue_of(tables, error)
                raise
            retain(session)
            yield from told_of(tables, done, with_columns=is_told(place.environ))
            seconds = (datetime.now(UTC) - began).total_seconds()
            yield dg.MaterializeResult(
                asset_key=PUBLISHED,
                metadata=_of_publication(done, swept, seconds),
                check_results=[_tables_agree(done, swept)],
            )
            note_verdicts(context.instance, place.home, place.environ, feeds)

    return published


def freshness(environ: Mapping[str, str]) -> dg.FreshnessPolicy:
    """Return the policy: late after the schedule's longest gap and half an hour, overdue after twice that time.

    The gap is the longest among the next 100 runs of the schedule.
    """
    ticks = cron_string_iterator(datetime.now(UTC).timestamp(), environ.get(SCHEDULE) or EVERY_HOUR, "UTC")
    gap = max(after - before for before, after in pairwise(islice(ticks, 100)))
    return dg.FreshnessPolicy.time_window(2 * gap + timedelta(hours=1), gap + timedelta(minutes=30))


def reports_job() -> "UnresolvedAssetJobDefinition":
    return dg.define_asset_job(
        REFRESH,
        selection=dg.AssetSelection.groups(GROUP),
        description="Sweeps the reports and publishes the tables.",
    )


def report_schedule(job: "UnresolvedAssetJobDefinition", environ: Mapping[str, str]) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=REFRESH,
        job=job,
        cron_schedule=environ.get(SCHEDULE) or EVERY_HOUR,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Every hour, or as the cron line in {SCHEDULE} says.",
    )


def _of_sweep(swept: Sweep) -> metadata.Metadata:
    seconds = (swept.finished_at - swept.started_at).total_seconds()
    return {
        metadata.ROWS: swept.total,
        "reports_new": swept.new,
        "reports_changed": swept.changed,
        "reports_gone": swept.gone,
        **metadata.pace(swept.total, seconds),
    }


def _pages_hold_the_total(swept: Sweep) -> dg.AssetCheckResult:
    with duckdb.connect() as db:
        counted = db.read_parquet(str(swept.path)).filter("gone_at IS NULL").aggregate("count(*)").fetchall()[0][0]
    return dg.AssetCheckResult(
        passed=counted == swept.total, metadata={"reports": counted, "total_of_the_target": swept.total}
    )


def _of_publication(done: Publication, swept: Sweep, seconds: float) -> metadata.Metadata:
    """Return counts, and the charts of the page as images; left out if they cannot be drawn."""
    charts: metadata.Metadata = {}
    with suppress(duckdb.Error):
        charts.update(charts_of(done.path))
    columns = [("table", "string", "The table."), ("rows", "int", "Its rows.")]
    return {
        metadata.ROWS: sum(done.rows.values()),
        "tables": len(done.rows),
        "reports": done.rows["diagnostic_report"],
        "batches": done.rows["import_batch"],
        "records": done.rows["import_row"],
        "rejects": done.rows["reject"],
        **metadata.pace(sum(done.rows.values()), seconds),
        "swept_at": dg.MetadataValue.timestamp(swept.finished_at),
        "file": dg.MetadataValue.path(str(done.path)),
        "page": dg.MetadataValue.path(str(done.page)),
        "rows_by_table": metadata.table(columns, sorted(done.rows.items())),
        **charts,
    }


def _tables_agree(done: Publication, swept: Sweep) -> dg.AssetCheckResult:
    query = f"""
        SELECT count(*), count(*) FILTER (WHERE state = 'finished'
            AND (records <> accepted + rejected OR accepted <> {" + ".join(OUTCOMES)})) FROM import_batch"""
    with duckdb.connect(str(done.path), read_only=True) as db:
        [(batches, open_batches)] = db.execute(query).fetchall()
        [(reports,)] = db.execute("SELECT count(*) FROM diagnostic_report").fetchall()
    return dg.AssetCheckResult(
        asset_key=PUBLISHED,
        check_name=TABLES_AGREE.name,
        passed=open_batches == 0 and reports == swept.total and batches == done.rows["import_batch"],
        metadata={"batches": batches, "batches_that_do_not_close": open_batches, "reports": reports},
    )
