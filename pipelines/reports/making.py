"""Make all tables in a database, and write them to the files of a publication."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import duckdb

from pipelines.home.unknown_patients import hide_strangers
from pipelines.ledger.ledger import Ledger
from pipelines.reports.building import comment, filled_of, make, write_parquet
from pipelines.reports.dictionary import data_package, dbt_sources
from pipelines.reports.ledger_inputs import bring_files, stage_ledger, stage_unanswered
from pipelines.reports.remarks import remarked_tables
from pipelines.reports.settings import ReportSettings
from pipelines.reports.staging import FREE_TEXT, MACROS, READ, SENDING_TIMES, stage_files, stage_publication
from pipelines.reports.sweep import Sweep
from pipelines.reports.tables import ReportTable, report_tables
from pipelines.reports.truths import check
from pipelines.reports.wide_tables import response_tables

SCORE = "score"
AS_WRITTEN = "SET disabled_optimizers = 'build_side_probe_side'"
"""Keep the right side of a join in memory, as the SQL is written.

DuckDB estimates few rows for inputs that it has not counted. It would then hash all rows of a file by the batch id that
they share, and could not split them to save memory.
"""


def make_tables(
    db: duckdb.DuckDBPyConnection,
    ledger: Ledger,
    sweep: Sweep,
    published_at: str,
    home: Path,
    settings: ReportSettings,
    with_sending_times: bool = True,
) -> list[ReportTable]:
    """Make all tables in a database, and check them; return their declarations.

    with_sending_times: True if the time of sending replaces a missing time.
    """
    db.execute(AS_WRITTEN)
    tables = report_tables(home)
    bring_files(ledger, home, sweep.target)
    for macro in (FREE_TEXT[settings.publish_free_text], SENDING_TIMES[with_sending_times], *MACROS):
        db.execute(macro)
    with ledger.snapshot() as snapshot:
        stage_ledger(db, snapshot)
        stage_unanswered(db, ledger, home)
    stage_publication(db, sweep, published_at)
    of_scores = stage_files(db, sweep, home, settings.publish_patients)
    tables = [replace(each, remarks=tuple(of_scores)) if each.name == SCORE else each for each in tables]
    hide_strangers(db, home)
    filled = filled_of(db)
    rows = {table.name: make(db, table, filled) for table in tables}
    for table in response_tables(db, settings, {table.name for table in tables}):
        rows[table.name] = make(db, table, filled)
        tables.append(table)
    tables = remarked_tables(db, tables, sweep.path.parent)
    for name in READ:
        db.unregister(name)
    check(db, tables, rows, sweep)
    return tables


def write_files(
    db: duckdb.DuckDBPyConnection, tables: Sequence[ReportTable], build: Path, published_at: str
) -> dict[str, int]:
    """Write the Parquet files as `*.part`, and `datapackage.json` and `sources.yml` beside `build`.

    Returns the rows of every table. published_at: the time written into `datapackage.json`.
    """
    rows = dict[str, int]()
    for table in tables:
        comment(db, table)
        rows[table.name] = write_parquet(db, table, build.parent / "parquet" / f"{table.name}.parquet.part")
    package = data_package(tables, published_at, version("chartferry"))
    build.with_suffix(".json").write_text(package, encoding="utf-8")
    build.with_suffix(".yml").write_text(dbt_sources(tables), encoding="utf-8")
    return rows
