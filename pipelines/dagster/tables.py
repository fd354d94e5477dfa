"""Every published table as an asset, with the description, inputs and checks that its file declares.

One step, the publication, makes all of them. A new `.sql` file or view needs no change here.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import dagster as dg
import duckdb

from pipelines.dagster import metadata
from pipelines.dagster.names import DagsterNames
from pipelines.dagster.openlineage import is_told
from pipelines.reports.lineage import Column, column_lineage
from pipelines.reports.publication import Publication, PublicationError
from pipelines.reports.tables import VIEWED, ReportTable

GROUP = "reports"
OWNERS = ["team:analytics"]
REFRESH, PUBLISH = "refresh_reports", "publish_tables"
"""The jobs that publish: after a new sweep of the reports, or with the reports of the last sweep."""
HOLDS = "keys_and_references_hold"
OF_THE_SWEEP = {
    *("swept_report", "gone_report", "swept_result", "swept_response", "charge", "told_patient"),
    *VIEWED.values(),
    *("known_questionnaire", "known_question", "known_option", "known_address", "known_name"),
    *("known_score", "known_score_item", "known_score_value", "known_score_band"),
}
OF_THE_PUBLICATION = {"this_publication", "ledger_publication", "known_rule"}


def key_of(names: DagsterNames, table: ReportTable) -> dg.AssetKey:
    return names.key(GROUP, table.name)


def table_specs(
    names: DagsterNames, tables: Sequence[ReportTable], loaded: Sequence[dg.AssetKey], fresh: dg.FreshnessPolicy
) -> list[dg.AssetSpec]:
    """Return an asset for each table. loaded: the assets that fill the ledger."""
    lineage = _lineage(names, tables)
    return [
        dg.AssetSpec(
            key_of(names, table),
            deps=_sources(names, table, tables, loaded),
            description=f"{table.comment}\n\n```{_language(table)}\n{_without_header(table.select)}\n```",
            metadata={
                "dagster/column_schema": metadata.schema([each[:3] for each in table.columns]),
                "dagster/table_name": f"reports.main.{table.name}",
                "key": ", ".join(table.key) or "none",
                **lineage[table.name],
            },
            skippable=True,
            group_name=GROUP,
            code_version=hashlib.sha256(table.select.encode()).hexdigest()[:12],
            owners=OWNERS,
            kinds={"duckdb", "parquet", _language(table)},
            freshness_policy=fresh,
        )
        for table in tables
    ]


def _lineage(names: DagsterNames, tables: Sequence[ReportTable]) -> dict[str, dict[str, dg.TableColumnLineage]]:
    """Return, by table, metadata with the sources of its columns, as far as its SQL shows them."""
    published = tuple((table.name, tuple(column.name for column in table.columns)) for table in tables)
    selects = tuple((table.name, table.select) for table in tables if table.view is None)
    found = _drawn(published, selects)
    return {table.name: _shown(names, found.get(table.name, {})) for table in tables}


@lru_cache(maxsize=4)
def _drawn(
    published: tuple[tuple[str, tuple[str, ...]], ...], selects: tuple[tuple[str, str], ...]
) -> dict[str, dict[str, list[Column]]]:
    """Return the lineage of each SELECT, by table. It is cached, since clinics differ only by their own views.

    published: the columns of all tables.
    """
    with duckdb.connect() as db:
        return {name: column_lineage(db, select, dict(published)) for name, select in selects}


def _shown(names: DagsterNames, columns: Mapping[str, Sequence[Column]]) -> dict[str, dg.TableColumnLineage]:
    """Return the lineage of a table's columns as metadata; empty if it is unknown."""
    if not columns:
        return {}
    of_columns = {
        name: [dg.TableColumnDep(names.key(GROUP, table), column) for table, column in drawn]
        for name, drawn in columns.items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(of_columns)}


def _sources(
    names: DagsterNames, table: ReportTable, tables: Sequence[ReportTable], loaded: Sequence[dg.AssetKey]
) -> list[dg.AssetKey]:
    """Return the assets that a table reads: other tables, the sweep, and the loads for tables of the ledger."""
    published, found = {each.name for each in tables}, list[dg.AssetKey]()
    for name in table.inputs:
        if name in published:
            found.append(names.key(GROUP, name))
        elif name in OF_THE_SWEEP:
            found.append(names.sweep)
        elif name not in OF_THE_PUBLICATION:
            found += loaded
    return list(dict.fromkeys(found))


def _language(table: ReportTable) -> str:
    return "json" if table.view else "sql"


def _without_header(sql: str) -> str:
    lines = sql.splitlines()
    first = next((place for place, line in enumerate(lines) if not line.startswith("--")), 0)
    return "\n".join(lines[first:]).strip()


def table_checks(names: DagsterNames, tables: Sequence[ReportTable]) -> list[dg.AssetCheckSpec]:
    """Return a check for each table whose header names a key or references. If one fails, nothing is published."""
    return [
        dg.AssetCheckSpec(HOLDS, asset=key_of(names, table), blocking=True, description=_statements(table))
        for table in tables
        if table.key or table.references
    ]


def _statements(table: ReportTable) -> str:
    said = [f"One row per {', '.join(table.key)}."] if table.key else []
    said += [f"Every {column} is in {other}." for column, other in table.references]
    return " ".join([*said, "This is checked before anything is published."])


def told_of(
    names: DagsterNames, tables: Sequence[ReportTable], done: Publication, environ: Mapping[str, str]
) -> Iterator[dg.MaterializeResult[None]]:
    """Yield the materialization of each published table, with its check.

    environ: if it names an OpenLineage server, each materialization has the columns too, since that server reads them
    there.
    """
    with_columns = is_told(environ)
    lineage = _lineage(names, tables) if with_columns else {}
    for table in tables:
        if table.name in done.rows:
            file = done.path.parent / "parquet" / f"{table.name}.parquet"
            about: metadata.Metadata = {
                metadata.ROWS: done.rows[table.name],
                "parquet": dg.MetadataValue.path(str(file)),
            }
            if with_columns:
                about |= {
                    "dagster/column_schema": metadata.schema([each[:3] for each in table.columns]),
                    **lineage[table.name],
                }
            holds = [dg.AssetCheckResult(passed=True, asset_key=key_of(names, table), check_name=HOLDS)]
            checked = bool(table.key or table.references)
            yield dg.MaterializeResult(
                asset_key=key_of(names, table), metadata=about, check_results=holds if checked else []
            )


def untrue_of(
    names: DagsterNames, tables: Sequence[ReportTable], error: PublicationError
) -> Iterator[dg.AssetCheckResult]:
    """Yield a failed check with the reasons for each table that prevented the publication."""
    for table in tables:
        if untrue := error.by_table.get(table.name):
            yield dg.AssetCheckResult(
                passed=False, asset_key=key_of(names, table), check_name=HOLDS, description="; ".join(untrue)
            )
