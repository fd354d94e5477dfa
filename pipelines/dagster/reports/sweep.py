"""The asset of the sweep: every diagnostic report of the target."""

from collections.abc import Iterator, Sequence

import dagster as dg
import duckdb

from pipelines.dagster import metadata
from pipelines.dagster.names import AGAIN, DagsterNames
from pipelines.dagster.run_resource import RESOURCE_KEY, workplace_of
from pipelines.dagster.tables import GROUP, OWNERS
from pipelines.reports.pages import SWEPT
from pipelines.reports.sweep import Sweep
from pipelines.runs.manifest import software_version
from pipelines.session.sweeping import sweep_target

TOTALS_AGREE = "the_pages_hold_what_the_total_says"


def sweep_asset(names: DagsterNames, reference: Sequence[dg.AssetKey]) -> dg.AssetsDefinition:
    """Return the asset of the sweep. reference: the load of reference data, which may change the target's reports."""
    totals_agree = dg.AssetCheckSpec(
        TOTALS_AGREE,
        asset=names.sweep,
        blocking=True,
        description="The sweep found as many different reports as the target counts.",
    )

    @dg.asset(
        key=names.sweep,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"fhir", "parquet"},
        code_version=software_version(),
        description="Every DiagnosticReport of the target as it is now, with the times when it changed or was gone. "
        "All reports are read each time: reading only new ones would miss late and corrected reports.",
        required_resource_keys={RESOURCE_KEY},
        check_specs=[totals_agree],
        retry_policy=AGAIN,
        deps=reference,
        metadata={
            "dagster/column_schema": metadata.schema(
                [(each.name, str(each.type), OF_SWEPT[each.name]) for each in SWEPT]
            )
        },
    )
    def diagnostic_report_sweep(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        with workplace_of(context) as place:
            swept = sweep_target(place.session(context.log))
            yield dg.MaterializeResult(metadata=_of_sweep(swept), check_results=[_pages_hold_the_total(swept)])

    return diagnostic_report_sweep


OF_SWEPT = {
    "report_id": "The report's id at the target.",
    "content_hash": "Hash of the content that is kept.",
    "body": "The report, without signed addresses.",
}


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
