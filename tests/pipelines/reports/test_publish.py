"""The published tables: exactly those promised, right to the cent, and replaced in one step whoever reads."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from pipelines.ledger.lease import utc_text
from pipelines.ledger.rows import Reason, Reject, Repeat
from pipelines.reports.publish import publish
from pipelines.reports.sweep import kept_sweep
from pipelines.reports.tables import report_tables, with_dictionary
from tests.support.publishing import (
    BATCH,
    CBC,
    LAB,
    OF,
    PAGED,
    TARGET,
    World,
    all_comments,
    import_payments,
    publish_only,
    report,
)

COUNTS = (
    "lines not_taken records accepted rejected created adopted unchanged updated superseded skipped refused in_doubt "
    "amount_received amount_accepted amount_created copayments amount_copayments"
)
SURFACE = {
    "diagnostic_report": "report_id status category_system category_code category_display code_system code "
    "code_display code_text patient_id encounter_id effective_at issued_at turnaround_hours "
    "result_count performer_count document_count",
    "diagnostic_report_category": "report_id position system code display",
    "diagnostic_report_code": "report_id position system code display",
    "diagnostic_report_performer": "report_id practitioner_id",
    "diagnostic_report_result": "report_id observation_id",
    "report_volume_by_month": "month category_code status reports patients",
    "report_turnaround": "category_code code code_display reports "
    "p50_hours p90_hours max_hours issued_before_effective",
    "report_by_patient": "patient_id reports first_effective_at last_effective_at corrected",
    "report_by_performer": "practitioner_id reports patients p50_turnaround_hours",
    "import_batch": "batch_id target feed source resource_type state file_name file_sha256 received_at finished_at "
    + COUNTS,
    "import_run": f"batch_id run started_at finished_at state feed_hash rules_version {COUNTS} message",
    "import_row": "batch_id target source source_key line state resource_type resource_id patient_id source_at amount "
    "attempts http_status finished_at",
    "reject": "reject_id batch_id line source_key stage state attempts first_seen_at last_seen_at closed_by_batch",
    "reject_reason": "reject_id rule_id expression message retryable",
    "payment_reconciliation": "patient_id paid_on received created refused difference",
    "publication": "published_at target reports_total batches software_version",
}


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Reports and payments, published once for tests that only read the tables."""
    made = World(tmp_path_factory.mktemp("paid"))
    import_payments(made)
    with all_comments():
        made.publish()
    yield made
    made.ledger.close()


def test_every_promised_table_and_column_exists_and_every_other_is_declared(paid: World) -> None:
    """REPORT-01, REPORT-02, REPORT-03"""
    found: dict[str, list[str]] = {}
    described = "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE schema_name = 'main' "
    for table, column, kind, comment in paid.rows(described + "AND NOT internal ORDER BY table_name, column_index"):
        found.setdefault(table, []).append(column)
        assert comment
        if column.endswith("_at"):
            assert kind == "TIMESTAMP WITH TIME ZONE"
        if column.startswith("amount") or (
            table == "payment_reconciliation" and column not in ("patient_id", "paid_on")
        ):
            assert kind == "DECIMAL(18,2)"
    for name, promised in SURFACE.items():
        assert set(promised.split()) <= set(found[name])
    assert found == {table.name: [column.name for column in table.columns] for table in report_tables()}
    assert all(comment for (comment,) in paid.rows("SELECT comment FROM duckdb_tables()"))
    parquet = paid.published.path.parent / "parquet"
    assert sorted(path.name for path in parquet.iterdir()) == sorted(f"{name}.parquet" for name in found)
    number = dict(paid.rows(" UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in found)))
    for name, columns in found.items():
        of_parquet = duckdb.read_parquet(f"{parquet}/{name}.parquet")
        assert of_parquet.columns == columns
        assert of_parquet.shape[0] == number[name] == paid.published.rows[name]


def test_reports_become_rows(paid: World) -> None:
    """REPORT-06, REPORT-07, REPORT-08, REPORT-09, REPORT-20"""
    [r1] = paid.rows("FROM diagnostic_report WHERE report_id = 'r1'")
    assert r1[:9] == (
        *("r1", "final", LAB["system"], "LAB", "Laboratory"),
        *(CBC["system"], "58410-2", "CBC panel", "Complete blood count"),
    )
    effective, issued = datetime(2026, 2, 1, 1, 30, tzinfo=UTC), datetime(2026, 2, 1, 3, 30, tzinfo=UTC)
    assert r1[9:] == ("p1", "e1", effective, issued, 2.0, 2, 2, 1)
    others = "SELECT report_id, effective_at, turnaround_hours, category_code, code FROM diagnostic_report OFFSET 1"
    assert paid.rows(others) == [
        ("r2", datetime(2026, 1, 10, 10, 0, 0, 500000, tzinfo=UTC), 10.0, "LAB", "58410-2"),
        ("r3", datetime(2026, 1, 5, tzinfo=UTC), None, "LAB", "58410-2"),
        ("r4", datetime(2026, 1, 10, 10, tzinfo=UTC), -2.0, "LAB", "58410-2"),
        ("r5", datetime(2026, 1, 1, tzinfo=UTC), 240.0, "LAB", "58410-2"),
        ("r6", None, None, "LP29684-5", None),
    ]
    assert paid.rows("FROM diagnostic_report_category WHERE report_id = 'r1'") == [
        ("r1", 0, LAB["system"], "LAB", "Laboratory"),
        ("r1", 1, None, "X", None),
        ("r1", 2, "http://loinc.org", "LP29684-5", "Radiology"),
    ]
    assert paid.rows("FROM diagnostic_report_code WHERE report_id IN ('r1', 'r6')") == [
        ("r1", 0, "http://loinc.org", "58410-2", "CBC panel"),
        ("r1", 1, "http://example.com", "CBC", None),
    ]
    performers = [("r1", "d1"), ("r1", "d2"), ("r2", "d1"), ("r3", "d1"), ("r5", "d3")]
    assert paid.rows("FROM diagnostic_report_performer") == performers
    assert paid.rows("FROM diagnostic_report_result") == [("r1", "o1", "not read"), ("r1", "o2", "not read")]


def test_figures_leave_out_what_is_entered_in_error_and_negative_turnarounds(paid: World) -> None:
    """REPORT-10, REPORT-11, REPORT-12, REPORT-13, REPORT-20, REPORT-22"""
    assert paid.rows("FROM report_volume_by_month") == [
        (date(2026, 1, 1), "LAB", "entered-in-error", 1, 1),
        (date(2026, 1, 1), "LAB", "final", 3, 1),
        (date(2026, 2, 1), "LAB", "final", 1, 1),
        (None, "LP29684-5", "final", 1, 1),
    ]
    assert paid.rows("FROM report_turnaround") == [
        ("LAB", "58410-2", "CBC panel", 4, 6.0, pytest.approx(9.2), 10.0, 1, 1, 1),
        ("LP29684-5", None, None, 1, None, None, None, 0, 1, 0),
    ]
    first, last = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 2, 1, 1, 30, tzinfo=UTC)
    assert paid.rows("FROM report_by_patient") == [("p1", 4, first, last, 0), ("p2", 1, None, None, 0)]
    assert paid.rows("FROM report_by_performer") == [("d1", 3, 1, 6.0, 1), ("d2", 1, 1, 2.0, 1)]


@pytest.mark.long
def test_corrected_counts_reports_that_a_later_sweep_found_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-21, REPORT-22"""
    publish_only(monkeypatch, "report_by_patient")
    world.read()
    world.reports[0] = {**world.reports[0], "issued": "2026-02-01T04:30:00+00:00"}
    world.reports[1] = {**world.reports[1], "status": "entered-in-error"}
    del world.reports[2]
    world.read()
    world.publish()
    assert world.rows("SELECT patient_id, reports, corrected FROM report_by_patient") == [("p1", 2, 1), ("p2", 1, 0)]
    assert world.rows("SELECT count(*) FROM diagnostic_report") == [(5,)]


def test_batches_and_runs_show_counts_and_amounts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-14, REPORT-23, LEDGER-02: the same file again is a run, and changes neither batch nor rows."""
    publish_only(monkeypatch, "import_run", "import_row")
    import_payments(world)
    world.publish()
    batch = "SELECT * EXCLUDE (received_at, finished_at) FROM import_batch"
    before, rows = world.rows(batch), world.rows("FROM import_row")
    counts = (
        9,
        1,
        7,
        6,
        1,
        2,
        1,
        0,
        0,
        0,
        0,
        2,
        1,
        Decimal("70.27"),
        Decimal("65.27"),
        Decimal("20.08"),
        None,
        None,
        None,
    )
    assert before[0] == (
        BATCH,
        TARGET,
        "payments",
        "default",
        "PaymentNotice",
        "finished",
        "payments.csv",
        None,
        *counts,
    )
    world.run(BATCH, {"lines": 9, "records": 7, "accepted": 6, "unchanged": 5, "refused": 1, "rejected": 1})
    world.ledger.note_repeats(TARGET, *OF, BATCH, [Repeat(2, "k2", "unchanged", "id-2", "p1", None, 1002)])
    world.publish()
    assert (world.rows(batch), world.rows("FROM import_row")) == (before, rows)
    runs = world.rows("SELECT batch_id, run, created, unchanged, feed_hash, rules_version FROM import_run")
    assert runs == [
        (BATCH, 1, 2, 0, "f1", "1"),
        (BATCH, 2, 0, 5, "f1", "1"),
        ("payments-ffffffffffff", 1, 2, 1, "f1", "1"),
    ]


def test_the_table_of_rows_shows_the_outcome_of_each_record(paid: World) -> None:
    """REPORT-15, LEDGER-04"""
    chosen = "SELECT source_key, line, state, resource_id, amount, attempts, http_status FROM import_row"
    assert paid.rows(f"{chosen} WHERE batch_id = '{BATCH}'") == [
        ("k2", 2, "created", "id-2", Decimal("10.02"), 1, 201),
        ("k3", 3, "adopted", "id-3", Decimal("10.03"), 1, 200),
        ("k4", 4, "refused", None, Decimal("10.04"), 1, 422),
        ("k5", 5, "in_doubt", None, Decimal("10.05"), 1, None),
        ("k6", 6, "created", "id-6", Decimal("10.06"), 1, 201),
        ("k7", 7, "refused", None, Decimal("10.07"), 1, 422),
    ]
    assert paid.rows(f"{chosen} WHERE batch_id <> '{BATCH}'") == [
        ("k2", 2, "unchanged", "id-2", Decimal("10.02"), 0, None),
        ("k4", 3, "created", "id-4", Decimal("9.04"), 2, 201),
        ("k8", 4, "created", "id-8", Decimal("4.90"), 1, 201),
    ]


def test_rejects_show_every_reason_and_what_closed_them(paid: World) -> None:
    """REPORT-16, REPORT-17, LEDGER-07"""
    chosen = "SELECT line, source_key, stage, state, attempts, closed_by_batch FROM reject"
    assert paid.rows(chosen) == [
        (4, "k4", "load", "closed", 1, "payments-ffffffffffff"),
        (7, "k7", "load", "open", 1, None),
        (8, "k8", "rule", "closed", 1, "payments-ffffffffffff"),
    ]
    joined = "SELECT line, rule_id, expression, message, retryable FROM reject_reason JOIN reject USING (reject_id)"
    assert sorted(paid.rows(joined)) == [
        (4, "PAY-9", "PaymentNotice.amount", "Unprocessable entity", True),
        (7, "PAY-9", "PaymentNotice.amount", "Unprocessable entity", True),
        (8, "FEED-1", "paid_on", "not a date", False),
        (8, "PAY-2", "PaymentNotice.amount.value", "more than two decimals", False),
    ]


def test_payments_are_reconciled_per_patient_and_day_to_the_cent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-18, REPORT-24: adopted counts as created, a rejected one as refused, a corrected one as its correction."""
    publish_only(monkeypatch, "payment_reconciliation")
    import_payments(world)
    world.run("payments-b", {}, target="elsewhere")
    world.publish()
    in_doubt, created = Decimal("10.05"), Decimal("10.02") + Decimal("10.03") + Decimal("9.04") + Decimal("4.90")
    assert world.rows("FROM payment_reconciliation") == [
        ("p1", date(2026, 2, 1), created + in_doubt, created, Decimal("0.00"), in_doubt),
        ("p1", date(2026, 2, 2), Decimal("10.07"), Decimal("0.00"), Decimal("10.07"), Decimal("0.00")),
        ("p2", date(2026, 2, 1), Decimal("10.06"), Decimal("10.06"), Decimal("0.00"), Decimal("0.00")),
    ]


@pytest.mark.long
@pytest.mark.parametrize("rejects", [pytest.param(2, marks=pytest.mark.long), 1_500])
def test_impossible_amounts_are_published_and_too_large_sums_are_empty(
    world: World, rejects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-18, REPORT-24, REPORT-25: one amount in a reject, and their sum beyond the digits of a table."""
    publish_only(monkeypatch, *PAGED, "import_run", "payment_by_day")
    cents, paid = 10**15 - 1, utc_text(datetime(2026, 2, 1, tzinfo=UTC))
    broken = [Reason("PAY-9", "PaymentNotice.amount", "amount", "above the balance", False)]
    aside = [Reject(n, 1, f"k{n}", "rule", "p1", paid, cents, broken) for n in range(2, 2 + rejects)]
    world.ledger.reject(TARGET, *OF, BATCH, aside)
    counts = {"lines": rejects + 1, "records": rejects, "rejected": rejects, "amount_received": 10**5 * cents}
    world.run(BATCH, {"header": 1, **counts})
    world.publish()
    sum_of_all = Decimal(cents * rejects) / 100
    summed = sum_of_all if sum_of_all <= Decimal("9999999999999999.99") else None
    assert world.rows("SELECT amount_received FROM import_batch UNION ALL SELECT amount_received FROM import_run") == [
        (None,),
        (None,),
    ]
    assert world.rows("SELECT DISTINCT amount FROM payment") == [(Decimal(cents) / 100,)]
    assert world.rows("SELECT amount FROM payment_by_day") == [(summed,)]
    assert world.rows("SELECT received, refused, difference FROM payment_reconciliation") == [
        (summed, summed, Decimal("0.00"))
    ]
    page = (world.home / "published" / "report.html").read_text()
    assert "above $9,999,999.99, too high for a payment, and left out of every sum" in page


def test_every_publication_is_on_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-19"""
    publish_only(monkeypatch, "publication")
    first = world.publish()
    import_payments(world)
    second = world.publish()
    assert world.rows("SELECT published_at, target, reports_total, batches FROM publication") == [
        (first.published_at, TARGET, 6, 0),
        (second.published_at, TARGET, 6, 2),
    ]


def test_a_target_that_was_never_swept_still_gets_its_import_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_only(monkeypatch, "import_row")
    import_payments(world)
    publish(world.home, world.ledger, kept_sweep(world.home, TARGET))
    assert world.rows("SELECT count(*) FROM diagnostic_report UNION ALL SELECT count(*) FROM import_batch") == [
        (0,),
        (2,),
    ]


def test_a_sweep_that_was_killed_before_its_figures_is_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-19: the reports are those of the sweep, with the figures of the one before, or none."""
    publish_only(monkeypatch, "publication")
    figures = world.read().path.with_name("sweep.json")
    before = figures.read_bytes()
    world.reports.append(report("another"))
    world.read()
    for left in (before, None):
        figures.write_bytes(left) if left else figures.unlink()
        publish(world.home, world.ledger, kept_sweep(world.home, TARGET))
    assert world.rows("SELECT reports_total FROM publication") == [(7,), (7,)]


def test_the_data_dictionary_is_current() -> None:
    """REPORT-03: docs/analysts.md is written from the headers of sql/reports."""
    page = (Path(__file__).parents[3] / "docs" / "analysts.md").read_text()
    assert page == with_dictionary(page, report_tables()), "python -m pipelines.reports.tables docs/analysts.md"
    assert {table.name for table in report_tables()} >= set(SURFACE)
