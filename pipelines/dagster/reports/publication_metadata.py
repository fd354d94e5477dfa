"""The metadata and the check of a publication in Dagster: counts, charts, and tables that agree with the ledger."""

import base64
from contextlib import suppress
from pathlib import Path

import dagster as dg
import duckdb

from pipelines.dagster import metadata
from pipelines.dagster.names import DagsterNames
from pipelines.ledger.states import OUTCOMES
from pipelines.reports.charts import Chart
from pipelines.reports.document import TEMPLATES, templates
from pipelines.reports.page import charts_of_tables
from pipelines.reports.publication import Publication
from pipelines.reports.sweep import Sweep

TABLES_AGREE = "the_tables_agree_with_the_ledger"


def tables_agree_spec(names: DagsterNames) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        TABLES_AGREE,
        asset=names.published,
        blocking=True,
        description="For every finished batch: records = accepted + rejected, accepted = the sum of the outcomes. All "
        "batches and all reports are in the published file, from which this is read.",
    )


def of_publication(done: Publication, swept: Sweep, seconds: float) -> metadata.Metadata:
    """Return counts, and the charts of the page as images; charts that cannot be drawn are left out."""
    charts: metadata.Metadata = {}
    with suppress(duckdb.Error):
        charts.update(_charts_of(done.path))
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
        **({"remarks": "\n".join(done.remarks)} if done.remarks else {}),
        "rows_by_table": metadata.table(columns, sorted(done.rows.items())),
        **charts,
    }


def tables_agree(names: DagsterNames, done: Publication, swept: Sweep) -> dg.AssetCheckResult:
    query = f"""
        SELECT count(*), count(*) FILTER (WHERE state = 'finished'
            AND (records <> accepted + rejected OR accepted <> {" + ".join(OUTCOMES)})) FROM import_batch"""
    with duckdb.connect(str(done.path), read_only=True) as db:
        [(batches, open_batches)] = db.execute(query).fetchall()
        [(reports,)] = db.execute("SELECT count(*) FROM diagnostic_report").fetchall()
    return dg.AssetCheckResult(
        asset_key=names.published,
        check_name=TABLES_AGREE,
        passed=open_batches == 0 and reports == swept.total and batches == done.rows["import_batch"],
        metadata={"batches": batches, "batches_that_do_not_close": open_batches, "reports": reports},
    )


def _charts_of(published: Path) -> dict[str, dg.MarkdownMetadataValue]:
    """Return an image for each chart of the published file that is not empty, by `chart_<name>`."""
    with duckdb.connect(str(published), read_only=True) as db:
        figures = charts_of_tables(db)
    return {
        f"chart_{figure.name}": dg.MetadataValue.md(f"**{figure.title}**\n\n{_image(figure.chart, figure.says)}")
        for figure in figures
        if figure.chart
    }


def _image(chart: Chart, says: str) -> str:
    """Return the chart as Markdown with a self-contained SVG in it, including legend and colours."""
    svg = templates(TEMPLATES).get_template("chart.svg").render(chart=chart)
    return f"![{says}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
