"""The page `report.html`: an overview of a publication, in one self-contained file.

It shows counts and sums of the published tables, file names and rules, and never a patient or a record's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from fhir_service.interface.resources.payment_notice import MOST
from pipelines.home.counted import counted
from pipelines.reports.attention import BatchNow, batches_now, problems_of
from pipelines.reports.document import TEMPLATES, document, dollars
from pipelines.reports.figures import Figure, absurd_said, count, figures_of


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page. `alarms`: True if the number should be zero and is not."""

    name: str
    value: str
    more: str = ""
    alarms: bool = False


def page_of(db: duckdb.DuckDBPyConnection, notes: Sequence[str]) -> str:
    """Return the HTML page of the published tables in `db`. notes: sentences for readers, such as remarks on tables."""
    [(published_at, target, version, month)] = db.execute(LAST_PUBLICATION).fetchall()
    batches = batches_now(db)
    return document(
        "report.html",
        TEMPLATES,
        ["report.css"],
        published_at=published_at,
        target=target,
        version=version,
        notes=notes,
        tiles=_tiles(db, batches),
        problems=problems_of(batches),
        figures=figures_of(db, batches, month),
        runs=db.execute(RUNS).fetchall()[0][0],
    )


def charts_of_tables(db: duckdb.DuckDBPyConnection) -> list[Figure]:
    """Return the charts of the published tables in `db` for Dagster, without sums of payments."""
    [(*_, month)] = db.execute(LAST_PUBLICATION).fetchall()
    return figures_of(db, batches_now(db), month, with_money=False)


LAST_PUBLICATION = """
    SELECT strftime(published_at, '%d %B %Y, %H:%M UTC'), target, software_version,
        strftime(published_at, '%Y-%m')
    FROM publication ORDER BY published_at DESC LIMIT 1"""
RUNS = "SELECT count(*) FROM import_run WHERE finished_at IS NOT NULL"
TILES = f"""
    SELECT
        (SELECT count(*) FROM diagnostic_report),
        (SELECT count(DISTINCT patient_id) FROM diagnostic_report),
        (SELECT count(*) FROM reject WHERE state = 'open'),
        (SELECT coalesce(sum(amount), 0) FROM payment WHERE abs(amount) <= {MOST}),
        (SELECT coalesce(sum(amount) FILTER (WHERE fate = 'created'), 0) FROM payment)"""


def _tiles(db: duckdb.DuckDBPyConnection, batches: list[BatchNow]) -> list[Tile]:
    [(reports, patients, rejects, received, created)] = db.execute(TILES).fetchall()
    failed = sum(each.is_failed or each.is_cut_off or each.took_nothing for each in batches)
    doubts = sum(each.doubts for each in batches)
    apart = ", impossible amounts left out" if absurd_said(db) else ""
    return [
        Tile("Records read", count(sum(each.records for each in batches)), f"in {counted(len(batches), 'file')}"),
        Tile("Files not loaded", count(failed), "and not corrected since", alarms=failed > 0),
        Tile("Records set aside", count(rejects), "still open", alarms=rejects > 0),
        Tile("Rows in doubt", count(doubts), "outcome not known", alarms=doubts > 0),
        Tile("Money created", dollars(created), f"of {dollars(received)} received, repeats counted once{apart}"),
        Tile("Diagnostic reports", count(reports), f"of {counted(patients, 'patient')}"),
    ]
