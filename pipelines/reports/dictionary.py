"""The dictionary of the published tables for programs: `datapackage.json` (Frictionless) and `sources.yml` (dbt).

Both repeat the comments of the tables, from the same declarations.
"""

import json
from collections.abc import Iterator, Sequence

from pipelines.reports.tables import ColumnOf, ReportTable

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
