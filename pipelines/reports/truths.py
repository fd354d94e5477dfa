"""Statements about the tables that must be true before they are published."""

from collections.abc import Iterator, Mapping

import duckdb

from pipelines.ledger.states import OUTCOMES
from pipelines.reports.building import FAULTS_OF_THE_TEXT
from pipelines.reports.publication import PublicationError
from pipelines.reports.sweep import Sweep
from pipelines.reports.tables import BrokenTable, ReportTable


def count(db: duckdb.DuckDBPyConnection, query: str) -> int:
    [[number]] = db.execute(query).fetchall()
    return int(number)


OUTCOMES_SUM = " + ".join(OUTCOMES)
ONE_RUN = "(SELECT target, batch_id FROM ledger_run GROUP BY ALL HAVING count(*) = 1)"
TOTALS: dict[str, str] = {
    "every report is in exactly one row of report_volume_by_month": """
        SELECT (SELECT count(*) FROM diagnostic_report) <> coalesce(sum(reports), 0) FROM report_volume_by_month""",
    "records = accepted + rejected, and accepted = the sum of the outcomes": f"""
        SELECT count(*) FROM ledger_batch
        WHERE state = 'finished' AND (records <> accepted + rejected OR accepted <> {OUTCOMES_SUM})""",
    "a batch of one finished run has as many rows as accepted records": f"""
        SELECT count(*) FROM ledger_batch
        SEMI JOIN {ONE_RUN} AS one_run USING (target, batch_id)
        LEFT JOIN (SELECT target, batch_id, count(*) AS row_count FROM import_row GROUP BY ALL) USING (target, batch_id)
        WHERE state = 'finished' AND accepted <> coalesce(row_count, 0)""",
    # A refused row without a reject is allowed in a file that was stopped: the retry of an older reject of its key
    # may have settled the doubt of the row.
    "every refused row is a reject": """
        SELECT count(*) FROM import_row ANTI JOIN (
            SELECT target, batch_id, line FROM ledger_reject
            UNION
            SELECT target, batch_id, line FROM ledger_resubmission
        ) AS set_aside USING (target, batch_id, line)
        WHERE import_row.state = 'refused' AND NOT EXISTS (
            FROM ledger_reject AS before SEMI JOIN ledger_batch AS batch
                ON batch.target = import_row.target AND batch.batch_id = import_row.batch_id
                AND batch.state <> 'finished'
            WHERE before.target = import_row.target AND before.resource_type = import_row.resource_type
                AND before.source = import_row.source AND before.source_key = import_row.source_key)""",
    "the payments created are those of the ledger, to the cent": """
        SELECT (SELECT coalesce(sum(created), 0) FROM payment_reconciliation) <> coalesce(sum(amount), 0)
        FROM (SELECT * FROM ledger_record UNION ALL BY NAME SELECT * FROM ledger_repeat)
        WHERE state IN ('created', 'adopted') AND resource_type = 'PaymentNotice'
            AND target IN (SELECT target FROM this_publication)""",
}
"""Statements about the tables, each with a query that gives 0 if the statement is true."""

UNKNOWN = "its key or references name what is not there"


def check(db: duckdb.DuckDBPyConnection, tables: list[ReportTable], rows: Mapping[str, int], sweep: Sweep) -> None:
    """Raise `PublicationError` with every false statement about the tables.

    rows: the number of rows of each table. Keys and references of a table without rows are not checked.
    """
    columns = {table.name.lower(): {column.name.lower() for column in table.columns} for table in tables}
    for table in tables:
        _names_what_is_there(table, columns)
    by_table = {table.name: _false_of(db, table) if rows[table.name] else [] for table in tables}
    failed = [name for untrue in by_table.values() for name in untrue]
    failed += [name for name, query in TOTALS.items() if count(db, query) != 0]
    if count(db, "SELECT count(*) FROM diagnostic_report") != sweep.total:
        failed.append("diagnostic_report has as many rows as the sweep kept reports")
    if failed:
        raise PublicationError(f"not published, because these are not true: {'; '.join(failed)}", by_table)


def _names_what_is_there(table: ReportTable, columns: Mapping[str, set[str]]) -> None:
    """Raise `BrokenTable` if the table's key or references name a table or column that does not exist."""
    named = [(table.name, name) for name in table.key]
    for column, other in table.references:
        named += [(table.name, column), (other, column)]
    if not all(name.lower() in columns.get(place.lower(), ()) for place, name in named):
        raise BrokenTable(f"{table.file}: {UNKNOWN}")


def _false_of(db: duckdb.DuckDBPyConnection, table: ReportTable) -> list[str]:
    """Return the statements of the table's header that are false. Raises `BrokenTable`."""
    try:
        return list(_doubles_and_lost(db, table))
    except FAULTS_OF_THE_TEXT:
        raise BrokenTable(f"{table.file}: {UNKNOWN}") from None


def _doubles_and_lost(db: duckdb.DuckDBPyConnection, table: ReportTable) -> Iterator[str]:
    key = ", ".join(f'"{name}"' for name in table.key)
    if key and count(
        db, f'SELECT count(*) FROM (FROM main."{table.name}" SELECT 1 GROUP BY {key} HAVING count(*) > 1)'
    ):
        yield f"{table.name} has one row per {key}"
    for column, other in table.references:
        elsewhere = f'SELECT "{column}" FROM main."{other}"'
        lost = f'''SELECT count(*) FROM main."{table.name}"
            WHERE "{column}" IS NOT NULL AND "{column}" NOT IN ({elsewhere})'''
        if count(db, lost):
            yield f"every {column} of {table.name} is in {other}"
