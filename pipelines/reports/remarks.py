"""What readers of a published table must know of its rows as they are now: behind its comment, on the page."""

from collections.abc import Iterator
from dataclasses import replace

import duckdb

from pipelines.reports.tables import ReportTable

RESULT = "diagnostic_report_result"
STATES = """
    SELECT count(*) FILTER (state = 'other patient'), count(*) FILTER (state = 'not read'), count(*)
    FROM diagnostic_report_result"""


def remarked(db: duckdb.DuckDBPyConnection, table: ReportTable) -> ReportTable:
    """Return a table that is built with what its rows show."""
    return replace(table, remarks=(*table.remarks, *_of_results(db))) if table.name == RESULT else table


def _of_results(db: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Yield a sentence on results that are not of their report's patient, or that the target does not have."""
    [(others, lost, named)] = db.execute(STATES).fetchall()
    found = [f"{others:,} are of another patient than their report's"] if others else []
    if 0 < lost < named:  # else the target shows no Observations
        found.append(f"{lost:,} are not at the target")
    if found:
        yield f"Of {named:,} results that reports name, {' and '.join(found)}: state says which."
