"""Statements about the tables: whatever makes one untrue ends the publication, and says which it was."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from pipelines.ledger.states import OUTCOMES
from pipelines.reports.publication import PublicationError
from pipelines.reports.truths import TOTALS, check

COUNTS = {"records": 4, "accepted": 3, "rejected": 1} | dict.fromkeys(OUTCOMES, 0) | {"created": 1, "adopted": 1}
ROW = "target TEXT, batch_id TEXT, line INT, state TEXT, resource_type TEXT, source TEXT, source_key TEXT"
TRUE = f"""
CREATE TABLE diagnostic_report AS SELECT * FROM VALUES ('r1', 'p1'), ('r2', NULL) AS _ (report_id, patient_id);
CREATE TABLE patient AS SELECT 'p1' AS patient_id;
CREATE TABLE report_volume_by_month AS SELECT 2 AS reports;
CREATE TABLE ledger_batch AS SELECT 't' AS target, 'b' AS batch_id, 'finished' AS state, 1 AS refused,
    {", ".join(f"{number} AS {name}" for name, number in COUNTS.items() if name != "refused")};
CREATE TABLE ledger_run AS SELECT 't' AS target, 'b' AS batch_id;
CREATE TABLE import_row ({ROW});
INSERT INTO import_row VALUES ('t', 'b', 2, 'created', 'PaymentNotice', 's', 'k2'),
    ('t', 'b', 3, 'adopted', 'PaymentNotice', 's', 'k3'), ('t', 'b', 4, 'refused', 'PaymentNotice', 's', 'k4');
CREATE TABLE ledger_reject AS FROM import_row WHERE line = 4;
CREATE TABLE ledger_resubmission AS FROM ledger_reject WHERE false;
CREATE TABLE ledger_record AS SELECT *, 10.50::DECIMAL(18, 2) AS amount FROM import_row;
CREATE TABLE ledger_repeat AS FROM ledger_record WHERE false;
CREATE TABLE payment_reconciliation AS SELECT 21.00::DECIMAL(18, 2) AS created;
CREATE TABLE this_publication AS SELECT 't' AS target;
"""
VOLUME, SUM, ROWS, REFUSED, CENTS = TOTALS
SWEPT = "diagnostic_report has as many rows as the sweep kept reports"
UNTRUE = [
    ("UPDATE report_volume_by_month SET reports = 1", VOLUME),
    ("UPDATE report_volume_by_month SET reports = 3", VOLUME),
    ("UPDATE ledger_batch SET records = 5", SUM),
    ("UPDATE ledger_batch SET refused = 2", SUM),
    ("DELETE FROM import_row WHERE line = 2", ROWS),
    ("INSERT INTO import_row SELECT * REPLACE (5 AS line) FROM import_row WHERE line = 2", ROWS),
    ("DELETE FROM ledger_reject", REFUSED),
    ("UPDATE ledger_reject SET line = 9, batch_id = 'before'", REFUSED),
    ("UPDATE ledger_batch SET state = 'stopped'; UPDATE ledger_reject SET line = 9, source_key = 'k9'", REFUSED),
    ("UPDATE payment_reconciliation SET created = 20.99", CENTS),
    ("UPDATE payment_reconciliation SET created = 21.01", CENTS),
    ("INSERT INTO ledger_repeat FROM ledger_record WHERE line = 3", CENTS),
    ("UPDATE diagnostic_report SET report_id = 'r1'", 'diagnostic_report has one row per "report_id"'),
    ("UPDATE diagnostic_report SET patient_id = 'p2'", "every patient_id of diagnostic_report is in patient"),
]
STILL_TRUE = [
    "UPDATE ledger_batch SET state = 'running', records = 9, accepted = 2",
    "INSERT INTO ledger_run FROM ledger_run; DELETE FROM import_row WHERE line = 2",
    "INSERT INTO ledger_resubmission FROM ledger_reject; DELETE FROM ledger_reject",
    "UPDATE ledger_batch SET state = 'stopped'; UPDATE ledger_reject SET line = 9, batch_id = 'before'",
    "INSERT INTO ledger_record SELECT * REPLACE ('other' AS target) FROM ledger_record",
    "INSERT INTO ledger_record SELECT * REPLACE ('Task' AS resource_type) FROM ledger_record",
    "DELETE FROM patient; UPDATE diagnostic_report SET patient_id = NULL",
]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute(TRUE)
        yield made


def checked(db: duckdb.DuckDBPyConnection, swept: int = 2) -> str:
    columns = [SimpleNamespace(name="report_id"), SimpleNamespace(name="patient_id")]
    report: Any = SimpleNamespace(
        name="diagnostic_report", key=["report_id"], references=[("patient_id", "patient")], columns=columns, file="f"
    )
    patient: Any = SimpleNamespace(name="patient", key=["patient_id"], references=[], columns=columns[1:], file="f")
    sweep: Any = SimpleNamespace(total=swept)
    try:
        check(db, [report, patient], {"diagnostic_report": 2, "patient": 1}, sweep)
    except PublicationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("change", "untrue"), UNTRUE)
def test_a_violated_statement_about_the_tables_is_named_alone(
    db: duckdb.DuckDBPyConnection, change: str, untrue: str
) -> None:
    """REPORT-23"""
    db.execute(change)
    assert checked(db) == f"not published, because these are not true: {untrue}"


@pytest.mark.parametrize("change", STILL_TRUE)
def test_a_state_that_may_occur_violates_no_statement_about_the_tables(
    db: duckdb.DuckDBPyConnection, change: str
) -> None:
    """REPORT-23: of batches under way, of other targets, and of rows that a later file answers."""
    db.execute(change)
    assert checked(db) == ""


def test_reports_that_are_lost_on_the_way_are_noticed(db: duckdb.DuckDBPyConnection) -> None:
    assert checked(db, swept=3) == f"not published, because these are not true: {SWEPT}"
