"""The charts of the published page as images for Dagster's metadata: Markdown with an SVG inside that loads nothing."""

import base64
from pathlib import Path

import dagster as dg
import duckdb

from pipelines.reports.charts import Chart
from pipelines.reports.document import TEMPLATES, templates
from pipelines.reports.page import charts_of_tables


def charts_of(published: Path) -> dict[str, dg.MarkdownMetadataValue]:
    """Return an image for each chart of the published file that is not empty, by `chart_<name>`."""
    with duckdb.connect(str(published), read_only=True) as db:
        figures = charts_of_tables(db)
    return {
        f"chart_{figure.name}": dg.MetadataValue.md(f"**{figure.title}**\n\n{_image(figure.chart, figure.says)}")
        for figure in figures
        if figure.chart
    }


def _image(chart: Chart, says: str) -> str:
    return f"![{says}](data:image/svg+xml;base64,{base64.b64encode(svg_of(chart).encode()).decode()})"


def svg_of(chart: Chart) -> str:
    """Return the chart as a complete SVG file, with legend and colours."""
    return templates(TEMPLATES).get_template("chart.svg").render(chart=chart)
