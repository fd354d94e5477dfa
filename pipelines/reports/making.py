"""Make all tables in a database, and write them to the files of a publication.

The dictionary of the tables for programs, `datapackage.json` (Frictionless) and `sources.yml` (dbt), repeats the
comments of the tables, from the same declarations.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import duckdb

from pipelines.home.unknown_patients import hide_strangers
from pipelines.ledger.ledger import Ledger
from pipelines.reports.building import comment, filled_of, make, write_parquet
from pipelines.reports.ledger_inputs import bring_files, stage_ledger, stage_unanswered
from pipelines.reports.remarks import remarked_tables
from pipelines.reports.settings import ReportSettings
from pipelines.reports.staging import FREE_TEXT, MACROS, READ, SENDING_TIMES, stage_files, stage_publication
from pipelines.reports.sweep import Sweep
from pipelines.reports.tables import ColumnOf, ReportTable, report_tables
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


TYPES = {
    "BIGINT": "integer",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DOUBLE": "number",
    "INTEGER": "integer",
    "JSON": "any",
    "TIME": "time",
    "TIMESTAMPTZ": "datetime",
    "VARCHAR": "string",
}
"""The Table Schema type of each DuckDB type. Decimals are numbers, lists arrays."""
ABOUT = "What Chartferry imported into a chart, and the reports of the chart."


def data_package(tables: Sequence[ReportTable], published_at: str, version: str) -> str:
    """Return the Data Package (version 2) of the Parquet files: paths, columns, keys, references."""
    package = {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": "chartferry-reports",
        "description": ABOUT,
        "created": published_at,
        "version": version,
        "resources": [_resource(table) for table in _by_name(tables)],
    }
    return json.dumps(package, ensure_ascii=False, indent=1) + "\n"


def _resource(table: ReportTable) -> dict[str, object]:
    schema: dict[str, object] = {
        "$schema": "https://datapackage.org/profiles/2.0/tableschema.json",
        "fields": [_field(column) for column in table.columns],
    }
    if table.key:
        schema["uniqueKeys"] = [list(table.key)]
    if table.references:
        schema["foreignKeys"] = [
            {"fields": [column], "reference": {"resource": other, "fields": [column]}}
            for column, other in table.references
        ]
    return {
        "$schema": "https://datapackage.org/profiles/2.0/dataresource.json",
        "name": table.name,
        "type": "table",
        "path": f"parquet/{table.name}.parquet",
        "format": "parquet",
        "mediatype": "application/vnd.apache.parquet",
        "description": table.described,
        "schema": schema,
    }


def _field(column: ColumnOf) -> dict[str, str]:
    kind = "array" if column.type.endswith("[]") else TYPES.get(column.type, "number")
    return {"name": column.name, "type": kind, "description": column.comment}


def dbt_sources(tables: Sequence[ReportTable]) -> str:
    """Return the dbt source of the tables in `reports.duckdb`: columns with types; keys and references as tests."""
    return "\n".join(_source_lines(tables)) + "\n"


def _source_lines(tables: Sequence[ReportTable]) -> Iterator[str]:
    yield "version: 2"
    yield "sources:"
    yield "  - name: chartferry"
    yield f"    description: {_text(ABOUT)}"
    yield "    database: reports  # attach published/reports.duckdb under this name, read_only"
    yield "    schema: main"
    yield "    tables:"
    for table in _by_name(tables):
        yield f"      - name: {table.name}"
        yield f"        description: {_text(table.described)}"
        yield "        columns:"
        for column in table.columns:
            yield f"          - name: {_text(column.name)}"
            yield f"            data_type: {_text(column.type)}"
            yield f"            description: {_text(column.comment)}"
            yield from _tests(table, column.name)


def _tests(table: ReportTable, column: str) -> Iterator[str]:
    others = [other for name, other in table.references if name == column]
    if table.key == (column,) or others:
        yield "            data_tests:"
    if table.key == (column,):
        yield "              - unique"
    for other in others:
        yield "              - relationships:"
        yield "                  arguments:"
        yield f"                    to: source('chartferry', '{other}')"
        yield f"                    field: {column}"


def _by_name(tables: Sequence[ReportTable]) -> list[ReportTable]:
    return sorted(tables, key=lambda table: table.name)


def _text(text: str) -> str:
    """Return a text as a JSON string, which is also a YAML scalar."""
    return json.dumps(text, ensure_ascii=False)
