"""Each file in `sql/reports` becomes a table without other code; a broken one leaves the last publication."""

import shutil
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from pipelines.ledger.rows import Outcome, Reason, Reject
from pipelines.reports.publication import PublicationError
from pipelines.reports.tables import BrokenTable, readable_tables, report_tables, sql_folder, with_dictionary
from tests.support.publishing import (
    RAD,
    START,
    TARGET,
    World,
    carry_over,
    import_payments,
    payment,
    practitioners,
    publish_only,
    report,
    write_accepted,
)
from tests.support.questions import asked

ANALYSTS = Path(__file__).parents[3] / "docs" / "analysts.md"
HEADER = "-- table mine: Reports; it's | of mine.\n-- inputs: diagnostic_report\n-- key: report_id\n"
COLUMN = "-- column report_id VARCHAR: Id of the report.\n"
SELECT = "SELECT report_id\nFROM diagnostic_report\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `sql/reports`, which publications read."""
    copy = tmp_path / "sql"
    shutil.copytree(sql_folder(), copy)
    monkeypatch.setattr("pipelines.reports.tables.sql_folder", lambda: copy)
    return copy


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let publications make only a few of our tables."""
    return partial(publish_only, monkeypatch)


def test_a_new_file_becomes_a_table_a_parquet_file_and_a_row_of_the_documentation(
    world: World, folder: Path, only: Callable[..., None]
) -> None:
    """REPORT-01, REPORT-03"""
    only()
    (folder / "mine.sql").write_text(HEADER + COLUMN + SELECT)
    done = world.publish()
    assert done.rows["mine"] == 6
    assert world.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'mine'") == [
        ("Reports; it's | of mine.",)
    ]
    assert world.rows("SELECT comment FROM duckdb_columns() WHERE table_name = 'mine'") == [("Id of the report.",)]
    assert duckdb.read_parquet(str(done.path.parent / "parquet" / "mine.parquet")).shape == (6, 1)
    documented = with_dictionary(ANALYSTS.read_text(), report_tables())
    assert "### mine\n\nReports; it's | of mine.\n\nKey: `report_id`.\n" in documented
    assert documented.count("| `report_id` | VARCHAR | internal | Id of the report. |") > ANALYSTS.read_text().count(
        "| `report_id` | VARCHAR | internal | Id of the report. |"
    )


@pytest.mark.long
def test_a_table_whose_file_is_gone_is_gone_as_parquet_too(
    world: World, folder: Path, only: Callable[..., None]
) -> None:
    only()
    (folder / "mine.sql").write_text(HEADER + COLUMN + SELECT)
    parquet = world.publish().path.parent / "parquet"
    own = parquet / "of-an-analyst.parquet"
    own.write_bytes(b"mine")
    (folder / "mine.sql").unlink()
    world.publish()
    assert not (parquet / "mine.parquet").exists()
    assert own.exists()


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "no header": (SELECT, "mine.sql has no header line `-- table`"),
    "no columns": (HEADER + SELECT, "mine.sql has no header line `-- column`"),
    "another name": ((HEADER + COLUMN).replace("mine:", "yours:") + SELECT, "mine.sql declares the table yours"),
    "a stray line": ("-- hello\n" + HEADER + COLUMN + SELECT, "mine.sql: not a line of a header: -- hello"),
    "bytes": (b"\xff\xfe\x00", "mine.sql cannot be read (UnicodeDecodeError)"),
    "itself": (HEADER.replace("diagnostic_report", "mine") + COLUMN + SELECT, "tables that read each other: "),
    "no SQL": (HEADER + COLUMN + "SELEC report_id\n", "mine.sql line 5: Parser Error: syntax error"),
    "no such column": (
        HEADER + COLUMN + "SELECT\n    nothing\nFROM diagnostic_report",
        "mine.sql line 6: Binder Error",
    ),
    "no such table": (HEADER + COLUMN + "SELECT report_id\nFROM nowhere", "mine.sql line 6: Catalog Error"),
    "a value": (
        HEADER + COLUMN + "SELECT code_text::INT FROM diagnostic_report WHERE code_text <> ''",
        "mine.sql could not be built (ConversionException)",
    ),
    "a key twice": (
        (HEADER + COLUMN + SELECT).replace("SELECT report_id", "SELECT 'x' AS report_id"),
        'these are not true: mine has one row per "report_id"',
    ),
    "other columns": (HEADER + COLUMN + "SELECT 1 AS x", "mine.sql declares other columns than it gives: x INTEGER"),
    "another key": (
        (HEADER + COLUMN + SELECT).replace("key: report_id", "key: reprot_id"),
        "mine.sql: its key or references name what is not there",
    ),
}


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A published world that has one more report since."""
    made = World(tmp_path_factory.mktemp("published"))
    with pytest.MonkeyPatch.context() as patch:
        publish_only(patch)
        made.publish()
    made.reports.append(report("r7"))
    yield made
    made.ledger.close()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_leaves_the_last_publication_and_says_which_file_and_why(
    newer: World, folder: Path, only: Callable[..., None], name: str
) -> None:
    """REPORT-04, REPORT-25"""
    only()
    published, (text, why) = newer.home / "published", BROKEN[name]
    before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    (folder / "mine.sql").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PublicationError) as caught:
        newer.publish()
    assert why in str(caught.value)
    assert "Complete blood count" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert {path: path.read_bytes() for path in published.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_without_the_broken_file_all_reports_are_published(newer: World, only: Callable[..., None]) -> None:
    """REPORT-04"""
    only()
    assert newer.publish().rows["diagnostic_report"] == 7


@pytest.mark.long
def test_the_worked_queries_run_as_they_stand_where_there_are_only_payments_and_reports(world: World) -> None:
    """REPORT-03"""
    import_payments(world)
    world.publish()
    with world.tables() as db:
        answers = {question: db.execute(query).fetchall() for question, query in asked(ANALYSTS.read_text())}
    assert len(answers) == 40
    assert answers["Is all the money that the files name in the chart, and if not, where is it?"] == [
        ("created", 5, Decimal("44.05")),
        ("open", 1, Decimal("10.05")),
        ("refused", 1, Decimal("10.07")),
    ]
    assert [row[2] for row in answers["What is still set aside, why, and since when?"]] == ["PAY-9"]
    assert answers["Which results of reports could not be read, or are of another patient?"] == [("not read", 2, 1)]


@pytest.mark.long
def test_worked_queries_leave_nothing_out_that_their_reader_takes_as_counted(world: World) -> None:
    """REPORT-03: old payments, two reasons of one rule, reports in error, questions that nobody answers."""
    batch, of = "payments-aaaaaaaaaaaa", ("default", "PaymentNotice")
    old = payment("old", 2, 700, "p9", batch)._replace(source_at="1950-02-01T00:00:00.000000Z")
    twice = [Reason("FEED-1", None, column, "not a date", False) for column in ("paid_on", "seen_on")]
    world.begin(batch)
    with world.ledger.lease(TARGET) as lease:
        world.ledger.intend(lease, *of, [old])
        world.ledger.settle(TARGET, *of, [Outcome("old", 1, "created", "id-old", 201)])
        world.ledger.reject(TARGET, *of, batch, [Reject(3, 1, "bad", "map", "p9", old.source_at, 500, twice)])
    world.run(batch, {"lines": 2, "records": 2, "accepted": 1, "rejected": 1, "created": 1})
    days, p8 = ("2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z"), {"subject": {"reference": "Patient/p8"}}
    world.reports = [report("r1", status="entered-in-error", subject={"reference": "Patient/p9"})]
    world.reports += [report("r2", effectiveDateTime=days[0], **p8)]
    world.reports += [report("r3", effectiveDateTime=days[1], category=[{"coding": [RAD]}], **p8)]
    asks = [{"linkId": link, "text": link, "type": "decimal"} for link in ("pain", "sleep")]
    world.questionnaires = [{"resourceType": "Questionnaire", "id": "q1", "name": "Day", "status": "active"}]
    world.questionnaires[0]["item"] = [{"linkId": "part", "type": "group", "item": asks}]
    answered = {"linkId": "part", "item": [{"linkId": "pain", "answer": [{"valueDecimal": 3}]}]}
    about = {"resourceType": "QuestionnaireResponse", "status": "completed", "questionnaire": "Questionnaire/q1"}
    world.responses = [about | {"id": "a1", "subject": {"reference": "Patient/p9"}, "item": [answered]}]
    world.publish()
    with world.tables() as db:
        queries = asked(ANALYSTS.read_text())
        answers = {question.split("?")[0]: db.execute(query).fetchall() for question, query in queries}
    assert answers["How much money was rejected or refused, by reason"] == [
        ("FEED-1", None, "not a date", 1, Decimal("5.00"))
    ]
    kinds = answers["How much came in as copayments, and how much against balances, month by month"]
    assert (kinds[0][0], sum(row[3] for row in kinds)) == (date(1950, 2, 1), Decimal("7.00"))
    assert answers["Who paid, and has no report"] == [("p9",)]
    [(patient, _)] = answers["Whose last laboratory report is more than a year older than the latest report of all"]
    assert patient == "p8"  # whose latest report of that code is of another category
    unanswered = answers["Which questions are left unanswered most, and which of them are asked under a condition only"]
    assert unanswered == [("Day", "sleep", False, 1, 1), ("Day", "pain", False, 1, 0)]


@pytest.mark.long
def test_the_latest_report_per_patient_and_code_leaves_out_what_is_entered_in_error(
    world: World, only: Callable[..., None]
) -> None:
    only("report_latest")
    world.reports += [
        report("r7", code={"text": "No coding"}, subject={"reference": "Patient/p2"}, effectiveDateTime="2026-01-01"),
        report("r8", code={"text": "Another"}, category=[{"coding": [RAD]}], subject={"reference": "Patient/p2"}),
    ]
    world.publish()
    assert world.rows("SELECT patient_id, code, uncoded_name, report_id, reports FROM report_latest") == [
        ("p1", "58410-2", None, "r1", 4),
        ("p2", None, "Another", "r8", 1),
        ("p2", None, "No coding", "r7", 2),
    ]


def test_changes_of_reports_show_on_the_day_of_the_sweep_that_found_them(
    world: World, only: Callable[..., None]
) -> None:
    """REPORT-21"""
    only("report_change_by_day")
    uncoded = report("r7", category=[{"text": "Imaging"}, {"coding": [RAD]}])
    world.reports.append(uncoded)
    world.read()
    world.time += timedelta(days=1)
    world.reports[0] = {**world.reports[0], "issued": "2026-02-01T04:30:00+00:00"}
    world.reports[1] = {**world.reports[1], "status": "entered-in-error"}
    world.reports.remove(uncoded)
    del world.reports[2]
    world.publish()
    first, second = date(2026, 3, 1), date(2026, 3, 2)
    assert world.rows("FROM report_change_by_day") == [
        (first, "LAB", 5, 0, 0, 0),
        (first, "LP29684-5", 2, 0, 0, 0),
        (second, "LAB", 0, 2, 1, 1),
        (second, "LP29684-5", 0, 0, 0, 1),
    ]


def test_payments_count_once_and_by_day(world: World, only: Callable[..., None]) -> None:
    """REPORT-18, REPORT-24"""
    only("payment_by_day", "record_by_month")
    import_payments(world)
    world.publish()
    assert world.rows("SELECT source_key, amount, fate, resource_id FROM payment ORDER BY source_key") == [
        ("k2", Decimal("10.02"), "created", "id-2"),
        ("k3", Decimal("10.03"), "created", "id-3"),
        ("k4", Decimal("9.04"), "created", "id-4"),
        ("k5", Decimal("10.05"), "open", None),
        ("k6", Decimal("10.06"), "created", "id-6"),
        ("k7", Decimal("10.07"), "refused", None),
        ("k8", Decimal("4.90"), "created", "id-8"),
    ]
    assert world.rows("FROM payment_by_day") == [
        (date(2026, 2, 1), "default", "created", 5, 2, Decimal("44.05")),
        (date(2026, 2, 1), "default", "open", 1, 1, Decimal("10.05")),
        (date(2026, 2, 2), "default", "refused", 1, 1, Decimal("10.07")),
    ]
    assert world.rows("FROM record_by_month") == [
        (date(2026, 2, 1), "default", "PaymentNotice", "adopted", 1, 1),
        (date(2026, 2, 1), "default", "PaymentNotice", "created", 4, 2),
        (date(2026, 2, 1), "default", "PaymentNotice", "in_doubt", 1, 1),
    ]


def test_open_rejects_are_counted_by_age_and_rule(world: World, only: Callable[..., None]) -> None:
    """REPORT-16: for each age group, one reject at its lower bound, and one an hour younger."""
    only("reject_by_age", "reject_by_rule")
    import_payments(world)
    batch, reasons = "payments-222222222222", [Reason("FEED-1", None, "paid_on", "not a date", False)]
    world.begin(batch)
    begun = world.time + timedelta(hours=1)
    for days in (30, 7, 1):
        for hours in (0, 1):
            world.time = begun + timedelta(days=30 - days, hours=hours)
            found = Reject(2 + days + hours, 1, f"d{days}-{hours}", "map", "p1", None, None, reasons)
            world.ledger.reject(TARGET, "default", "PaymentNotice", batch, [found])
    world.run(batch, dict.fromkeys(("lines", "records", "rejected"), 6))
    world.time = begun + timedelta(days=30)
    world.publish()
    assert world.rows("SELECT feed, stage, age, rejects FROM reject_by_age") == [
        ("payments", "load", "30 days or more", 1),
        ("payments", "map", "under 1 day", 1),
        ("payments", "map", "1 to 6 days", 2),
        ("payments", "map", "7 to 29 days", 2),
        ("payments", "map", "30 days or more", 1),
    ]
    assert world.rows("SELECT rule_id, stage, rejects, still_open, retryable FROM reject_by_rule") == [
        ("FEED-1", "map", 6, 6, 0),
        ("FEED-1", "rule", 1, 0, 0),
        ("PAY-2", "rule", 1, 0, 0),
        ("PAY-9", "load", 2, 1, 1),
    ]


GROUP = [{"url": "http://x/task-group", "valueReference": {"reference": "Group/g1"}}]


def task(status: str = "requested", owner: str | None = None, due: str | None = None, **more: Any) -> dict[str, Any]:
    who = {"owner": {"reference": f"Practitioner/{owner}"}} if owner else {}
    when = {"restriction": {"period": {"end": due}}} if due else {}
    return (
        {"status": status, "requester": {"reference": "Practitioner/d9"}, "description": "SECRET"} | who | when | more
    )


def ago(days: int) -> datetime:
    return START - timedelta(days=days)


@pytest.mark.long
def test_open_tasks_are_counted_by_owner_and_age(world: World, only: Callable[..., None]) -> None:
    only("open_task_by_owner")
    batch = carry_over(
        world,
        "Task",
        {
            "new": (ago(1), task(owner="d1", due="2026-02-01")),
            "old": (ago(100), task(owner="d1", due="2026-12-01")),
            "older": (ago(120), task(owner="d1")),
            "team": (ago(10), task(extension=GROUP)),
            "done": (ago(10), task("completed", owner="d1")),
            "undated": (None, task(owner="d2")),
            "odd": (ago(40), {"status": "requested", "owner": "d1", "restriction": [], "extension": {}}),
        },
    )
    world.publish()
    counted = "SELECT owner_id, group_id, age, tasks, overdue, patients FROM open_task_by_owner"
    assert world.rows(counted) == [
        ("d1", None, "under 7 days", 1, 1, 1),
        ("d1", None, "90 days or more", 2, 0, 1),
        ("d2", None, "under 7 days", 1, 0, 1),
        (None, "g1", "7 to 29 days", 1, 0, 1),
        (None, None, "30 to 89 days", 1, 0, 1),
    ]
    chosen = (
        "SELECT source_key, batch_id, line, status, requester_id, due_at::DATE FROM task WHERE resource_id = 'id-new'"
    )
    assert world.rows(chosen) == [("new", batch, 2, "requested", "d9", date(2026, 2, 1))]
    assert world.rows("SELECT count(*) FROM task") == [(7,)]


def answered(link: str, *codes: str, **more: Any) -> dict[str, Any]:
    return {"linkId": link, "answer": [{"valueCoding": {"system": "s", "code": code}} for code in codes]} | more


def test_answers_at_any_depth_are_counted_by_question_and_code(world: World, only: Callable[..., None]) -> None:
    only("answer_by_question", "answer_by_code")
    of = {"questionnaire": "http://chart/Questionnaire/q1"}
    free = {"linkId": "story", "answer": [{"valueString": "SECRET"}]}
    deep = {"linkId": "group", "item": [answered("mood", "low", item=[]), free]}
    carry_over(
        world,
        "QuestionnaireResponse",
        {
            "r1": (ago(3), of | {"item": [deep, answered("signs", "a", "b")]}),
            "r2": (ago(2), of | {"item": [answered("mood", "low")]}),
            "r3": (ago(1), of | {"item": [{"linkId": "mood"}]}),
            "r4": (None, {"questionnaire": "http://chart/Questionnaire/q2", "item": {"linkId": "odd"}}),
        },
    )
    world.publish()
    assert world.rows("SELECT source_key, questionnaire_id, questions_answered FROM questionnaire_response") == [
        ("r1", "q1", 3),
        ("r2", "q1", 1),
        ("r3", "q1", 0),
        ("r4", "q2", 0),
    ]
    assert world.rows("FROM answer_by_question") == [
        ("q1", "mood", 3, 2, pytest.approx(66.67, abs=0.01), 2),
        ("q1", "signs", 3, 1, pytest.approx(33.33, abs=0.01), 2),
        ("q1", "story", 3, 1, pytest.approx(33.33, abs=0.01), 1),
    ]
    assert world.rows("SELECT * EXCLUDE (display) FROM answer_by_code") == [
        ("q1", "mood", "s", "low", 2, 1),
        ("q1", "signs", "s", "a", 1, 1),
        ("q1", "signs", "s", "b", 1, 1),
    ]


@pytest.mark.long
def test_the_table_of_tasks_shows_what_was_sent_and_no_purged_tasks(world: World, only: Callable[..., None]) -> None:
    """A later run of the file by a changed feed reads another owner, and sends nothing."""
    only("task", "import_row")
    batch = carry_over(world, "Task", {"k1": (ago(1), task(owner="d1"))})
    first, second = (world.home / "batches" / batch / name for name in ("run-1", "run-2"))
    second.mkdir()
    write_accepted(second, {2: ("k1", "h-other", orjson.dumps(task("completed", owner="d2")).decode())})
    world.publish()
    assert world.rows("SELECT status, owner_id FROM task") == [("requested", "d1")]
    for folder in (first, second):
        (folder / "accepted.parquet").unlink()
    world.publish()
    assert world.rows("SELECT count(*) FROM task") == [(0,)]
    assert world.rows("SELECT count(*) FROM import_row") == [(1,)]


def test_a_folder_of_views_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """VIEW-02: otherwise its tables would be missing unseen."""
    (tmp_path / "views").write_text("no folder")
    with pytest.raises(BrokenTable, match=r"views cannot be read: Not a directory"):
        report_tables(tmp_path)
    assert readable_tables(tmp_path) == readable_tables(None)
    assert report_tables(tmp_path / "none") == report_tables(None)


def test_a_report_without_a_status_counts_in_every_summary(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-20: reports in error alone are left out, and the page says how many."""
    statuses = enumerate(("final", None, "entered-in-error"))
    world.reports = [report(f"r{n}", status=status, performer=practitioners("d1")) for n, status in statuses]
    tables = ("report_by_patient", "report_by_performer", "report_latest", "report_turnaround")
    publish_only(monkeypatch, *tables)
    world.publish()
    for table in tables:
        assert world.rows(f"SELECT sum(reports) FROM {table}") == [(2,)], table
