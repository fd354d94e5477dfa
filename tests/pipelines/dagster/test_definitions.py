"""Dagster's definitions, and imports of the samples through them into the bundled service."""

import base64
import errno
import json
import re
import shutil
import sqlite3
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import dagster as dg
import duckdb
import pytest
from sqlalchemy.exc import OperationalError

from pipelines.dagster import checks
from pipelines.dagster.inbox.look import FileRequests, from_cursor, to_cursor
from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.stages import receiving
from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.dagster.standing.verdicts import INBOX_CHECK, WAITING_CHECK
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feed
from pipelines.home.disk import FULL
from pipelines.home.sensor_ticks import last_ticks, note_tick
from pipelines.ledger.ledger import Ledger
from pipelines.reports.tables import report_tables, sql_folder
from pipelines.validation.outcome import ValidationResult
from tests.support.commands import command
from tests.support.exports import PAYMENTS, feed_file
from tests.support.practice import SAMPLES, Practice, failures, materialized, observed, practicing, verdicts
from tests.support.publishing import publish_only

STAGES = ("received", "validated", "loaded")
BUILT_IN = ("answers", "payments", "tasks")


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    with practicing(tmp_path_factory.mktemp("home"), served=True) as practice:
        yield practice


# -- the definitions


def test_the_definitions_load_without_a_warning_and_describe_everything(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        definitions = build_definitions({"CHARTFERRY_HOME": str(tmp_path)})
        dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    keys = {tuple(key.path) for key in graph.get_all_asset_keys()} - {("reference", "loaded")}
    tables = {("reports", table.name) for table in report_tables()}
    reports = {("reports", "diagnostic_report_sweep"), ("reports", "published"), *tables}
    assert keys == {(feed, stage) for feed in BUILT_IN for stage in STAGES} | reports
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.group_name == key.path[0]
        assert node.description
        assert node.owners
        assert node.kinds
        assert node.code_version
        schema = node.metadata["dagster/column_schema"]
        assert schema.columns
        assert all(column.description for column in schema.columns), key
    repository = definitions.get_repository_def()
    assert repository.get_sensor_def("inbox").default_status == dg.DefaultSensorStatus.RUNNING
    assert repository.get_sensor_def("alerts").default_status == dg.DefaultSensorStatus.STOPPED
    assert repository.get_schedule_def("refresh_reports").default_status == dg.DefaultScheduleStatus.RUNNING


def test_the_sensor_of_alerts_runs_by_default_if_an_alert_command_is_set(tmp_path: Path) -> None:
    environ = {"CHARTFERRY_HOME": str(tmp_path), "CHARTFERRY_ALERT_COMMAND": "tell"}
    alerts = build_definitions(environ).get_repository_def().get_sensor_def("alerts")
    assert alerts.default_status == dg.DefaultSensorStatus.RUNNING
    without = build_definitions({"CHARTFERRY_HOME": str(tmp_path)}).get_repository_def().get_sensor_def("alerts")
    assert without.default_status == dg.DefaultSensorStatus.STOPPED


def test_the_last_tick_of_a_sensor_that_is_not_running_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "dagster").mkdir()
    note_tick(tmp_path, "alerts")
    note_tick(tmp_path, "look")
    build_definitions({"CHARTFERRY_HOME": str(tmp_path)})
    assert list(last_ticks(tmp_path)) == ["look"]


def test_lineage_reads_received_validated_loaded_published() -> None:
    graph = build_definitions({}).resolve_asset_graph()
    parents = {
        tuple(key.path): {tuple(p.path) for p in graph.get(key).parent_keys} for key in graph.get_all_asset_keys()
    }
    assert parents["payments", "received"] == set()
    assert parents["payments", "validated"] == {("payments", "received"), ("reference", "loaded")}
    assert parents["payments", "loaded"] == {("payments", "validated")}
    assert parents["reports", "diagnostic_report_sweep"] == {("reference", "loaded")}
    loaded, sweep = {(feed, "loaded") for feed in BUILT_IN}, {("reports", "diagnostic_report_sweep")}
    assert parents["reports", "import_batch"] == loaded
    assert parents["reports", "diagnostic_report"] == sweep
    assert parents["reports", "report_turnaround"] == {("reports", "diagnostic_report")}
    assert parents["reports", "published"] == {("reports", t.name) for t in report_tables()} | sweep | loaded


def test_a_feed_of_the_user_becomes_assets_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds" / "till.toml").write_text(
        'name = "front-desk.till"\nsource = "till"\nkind = "payments"\nfiles = ["till*"]\n'
        '[columns]\npayment_id = "No"\npatient_id = "Patient"\namount = "Sum"\npaid_on = "Day"\n'
    )
    definitions = build_definitions({"CHARTFERRY_HOME": str(tmp_path)})
    dg.Definitions.validate_loadable(definitions)
    node = definitions.resolve_asset_graph().get(dg.AssetKey(["front-desk.till", "loaded"]))
    assert node.group_name == "front_desk_till"


# -- running imports


@pytest.fixture(scope="module")
def imported(practice: Practice) -> tuple[list[str], dg.ExecuteInProcessResult]:
    """Import two sample files of payments in one run."""
    batch_ids = [practice.put("payments-2026-01.csv"), practice.put("payments-2026-03.ndjson")]
    return batch_ids, practice.run("import_payments", *batch_ids)


def test_a_run_takes_its_batches_through_all_stages_with_counts_as_metadata(
    practice: Practice, imported: tuple[list[str], dg.ExecuteInProcessResult]
) -> None:
    batch_ids, result = imported
    assert result.success, failures(result)
    found = materialized(result)
    assert set(found) == {(stage, batch_id) for stage in STAGES for batch_id in batch_ids}
    for batch_id in batch_ids:
        row, validated, loaded = practice.batch(batch_id), found["validated", batch_id], found["loaded", batch_id]
        assert row["state"] == loaded["state"] == "finished"
        for name in ("records", "created", "refused", "rejected", "skipped", "in_doubt"):
            assert loaded[name] == row[name], name
        assert validated["dagster/row_count"] == validated["accepted"] - validated["skipped"]  # type: ignore[operator]
        told = {name: round(sum * 100) for name, sum in loaded.items() if name.startswith("amount_")}  # type: ignore[operator]
        assert told == {name: row[name] for name in told}
        assert "amount_received" in told
        assert {"seconds", "records_per_second"} <= set(loaded)
        assert list((practice.home / "batches" / batch_id).glob("run-1/manifest.json"))
    assert not list((practice.home / "inbox").glob("payments*"))


def test_all_checks_run_and_say_that_nothing_was_lost(
    imported: tuple[list[str], dg.ExecuteInProcessResult],
) -> None:
    _, result = imported
    found = verdicts(result)
    names = [each.name for each in checks.AFTER_VALIDATE] + [each.name for each in checks.AFTER_LOAD]
    assert sorted(found) == sorted(names)
    assert found.pop("every_record_was_taken") == (False, "WARN")
    assert set(found.values()) == {(True, "ERROR")}


def test_no_value_of_a_row_reaches_the_event_log(imported: tuple[list[str], dg.ExecuteInProcessResult]) -> None:
    _, result = imported
    said = repr(result.all_events)
    rows = (SAMPLES / "inbox" / "payments-2026-01.csv").read_text().splitlines()[1:]
    keys = {row.split(",")[0] for row in rows if len(row.split(",")[0]) > 3}
    assert keys
    assert not [key for key in keys if key in said]


@pytest.mark.long
def test_a_batch_that_runs_again_creates_nothing(
    practice: Practice, imported: tuple[list[str], dg.ExecuteInProcessResult]
) -> None:
    batch_ids, before = imported
    again = practice.run("import_payments", batch_ids[0])
    assert again.success, failures(again)
    [first, second] = (materialized(each)["loaded", batch_ids[0]] for each in (before, again))
    assert (second["created"], second["unchanged"]) == (0, first["created"])
    assert second["run"] == 2


def test_a_file_whose_control_totals_disagree_is_not_sent_and_blocks(practice: Practice) -> None:
    (practice.home / "inbox" / "tasks-9.csv.control.json").write_text('{"rows": 99}')
    batch_id = practice.put("tasks-9.csv", "task_id,description,status,requester_id\nT1,Call back,ready,none\n")
    result = practice.run("import_tasks", batch_id)
    assert not result.success
    assert verdicts(result)["control_totals_agree"] == (False, "ERROR")
    assert ("loaded", batch_id) not in materialized(result)
    assert practice.batch(batch_id)["state"] == "stopped"
    why = "tasks-9.csv.control.json says 99 rows, the file has 1"
    note = {"file": "tasks-9.csv", "not_loaded": why}
    assert observed(result) == {("validated", batch_id): note, ("loaded", batch_id): note}
    assert materialized(result)["validated", batch_id]["nothing_is_sent"] == why
    assert f"{batch_id} (tasks-9.csv): {why}" in failures(result)


def test_a_file_that_fails_does_not_hold_up_the_others_of_its_run(practice: Practice) -> None:
    (practice.home / "inbox" / "tasks-a.csv.control.json").write_text('{"rows": 99}')
    bad = practice.put("tasks-a.csv", "task_id,description,status,requester_id\nT2,Call back,ready,none\n")
    broken = practice.put("tasks-b.csv", "")
    good = practice.put("tasks-phone.ndjson")
    result = practice.run("import_tasks", bad, broken, good)
    assert not result.success
    found = materialized(result)
    assert ("loaded", good) in found
    assert ("loaded", bad) not in found
    assert ("loaded", broken) not in found
    states = [practice.batch(batch_id)["state"] for batch_id in (bad, broken, good)]
    assert states == ["stopped", "failed", "finished"]
    assert verdicts(result)["control_totals_agree"] == (False, "WARN")
    assert bad in failures(result)
    assert broken in failures(result)
    notes = observed(result)
    assert set(notes) == {(stage, batch_id) for stage in ("validated", "loaded") for batch_id in (bad, broken)}
    assert sum(event.event_type_value == "ASSET_OBSERVATION" for event in result.all_events) == len(notes)
    assert notes["loaded", broken]["file"] == "tasks-b.csv"


def test_a_file_that_could_not_be_received_is_asked_for_again_and_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with practicing(tmp_path) as practice:
        (practice.home / "inbox" / "tasks-a.csv").write_text("task_id,description,status,requester_id\n")
        practice.tick("inbox")
        [request] = practice.tick("inbox").run_requests or ()
        with monkeypatch.context() as patched:

            def full(*_: object) -> str:
                raise OSError(errno.ENOSPC, "No space left on device")

            patched.setattr("pipelines.receiving.stage._copy", full)
            assert "no space left" in failures(practice.do(request))
        assert not practice.tick("inbox").run_requests
        seen = from_cursor(practice.cursors["inbox"])
        practice.cursors["inbox"] = to_cursor(replace(seen, asked=dict.fromkeys(seen.asked, FileRequests(1, 0))))
        [again] = practice.tick("inbox").run_requests or ()
        assert again.partition_key == request.partition_key
        assert again.run_key != request.run_key
        assert practice.do(again).success
        assert practice.batch(str(again.partition_key))["state"] == "finished"


@pytest.mark.parametrize("stages", [pytest.param(STAGES, marks=pytest.mark.long), STAGES[-1:]])
def test_failed_partitions_go_well_in_a_backfill_once_the_reason_is_gone(
    practice: Practice, stages: tuple[str, ...]
) -> None:
    """A backfill runs its partitions in one run, with all stages or the last one. The feed's limit had stopped them.

    In `make test`, the test of a file of copayments covers a backfill with all stages.
    """
    header = "payment_id,patient_id,amount,paid_on\n"
    feed = feed_file(practice.home, "till", 'kind = "payments"\nfiles = ["till*"]\nmax_rejects = 0\n', header)
    batches = []
    for number in (1, 2):
        path = practice.home / "inbox" / f"till-{number}.csv"
        path.write_text(f"{header}T{len(stages)}{number},p,much,2026-01-05\n")
        batches.append(batch_id_of(load_feed(feed), path))
    practice.instance.add_dynamic_partitions("till batches", batches)
    stopped = practice.run("import_till", *batches)
    assert not stopped.success
    assert verdicts(stopped)["rejects_stay_within_the_limit"] == (False, "ERROR")
    assert [practice.batch(batch_id)["state"] for batch_id in batches] == ["stopped", "stopped"]
    feed.write_text(feed.read_text().replace("max_rejects = 0", "max_rejects = 5"))
    again = practice.run("import_till", *batches, assets=[dg.AssetKey(["till", stage]) for stage in stages])
    assert again.success, failures(again)
    assert [practice.batch(batch_id)["state"] for batch_id in batches] == ["finished", "finished"]
    assert {("loaded", batch_id) for batch_id in batches} <= set(materialized(again))
    feed.unlink()


@pytest.mark.long
def test_a_file_of_copayments_alone_blocks_until_its_feed_confirms_it(practice: Practice) -> None:
    """LEDGER-23"""
    feed = feed_file(practice.home, "till", 'kind = "payments"\nfiles = ["till*"]\n', PAYMENTS)
    path = practice.home / "inbox" / "till-copayments.csv"
    rows = "".join(f"C{number},p,1.00,2026-01-05,c\n" for number in range(20))
    path.write_text(PAYMENTS + rows)
    batch_id = batch_id_of(load_feed(feed), path)
    practice.instance.add_dynamic_partitions("till batches", [batch_id])
    result = practice.run("import_till", batch_id)
    assert not result.success
    assert verdicts(result)["copayments_are_confirmed"] == (False, "ERROR")
    assert practice.batch(batch_id)["state"] == "stopped"
    feed.write_text('copayments = "all"\n' + feed.read_text())
    again = practice.run("import_till", batch_id)
    assert verdicts(again)["copayments_are_confirmed"] == (True, "ERROR")
    assert practice.batch(batch_id)["state"] == "finished"
    feed.unlink()


def test_the_tables_are_published_and_checked(
    practice: Practice, imported: tuple[list[str], dg.ExecuteInProcessResult]
) -> None:
    result = practice.run("refresh_reports")
    assert result.success, failures(result)
    found = materialized(result)
    assert found["diagnostic_report_sweep", None]["dagster/row_count"] == 600
    with duckdb.connect(str(practice.home / "published" / "reports.duckdb"), read_only=True) as db:
        [(batches,)] = db.execute("SELECT count(*) FROM import_batch").fetchall()
    assert found["published", None]["batches"] == batches
    found_true = {
        name: said for name, said in verdicts(result).items() if not name.startswith(("nothing_of_", "no_reject_of_"))
    }
    assert found_true == {
        INBOX_CHECK: (True, "ERROR"),
        WAITING_CHECK: (True, "ERROR"),
        "the_pages_hold_what_the_total_says": (True, "ERROR"),
        "keys_and_references_hold": (True, "ERROR"),
        "the_tables_agree_with_the_ledger": (True, "ERROR"),
    }
    assert {table.name for table in report_tables()} <= {stage for stage, _ in found}
    assert found["import_batch", None]["dagster/row_count"] == batches
    charts = {name: said for name, said in found["published", None].items() if name.startswith("chart_")}
    assert set(charts) == {f"chart_{name}" for name in ("volumes", "turnaround", "imports", "rejects")}
    for said in charts.values():
        [image] = re.findall(r"!\[[^\]]+\]\(data:image/svg\+xml;base64,([^)]+)\)", str(said))
        assert b"<script" not in base64.b64decode(image)
        assert ET.fromstring(base64.b64decode(image)).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314


@pytest.mark.long
def test_a_publication_also_evaluates_the_checks_of_what_is_broken(
    practice: Practice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster shows a check as not evaluated if its asset was made after it, as it is after a failed import."""
    publish_only(monkeypatch, "import_row", "reject_reason")
    of_reports = [key for key in practice.repository().asset_graph.get_all_asset_keys() if key.path[0] == "reports"]
    assets = [key for key in of_reports if key.path[-1] != "diagnostic_report_sweep"]
    assert ONE_HOME.published in assets
    result = practice.run("refresh_reports", assets=assets)
    assert result.success, failures(result)
    newest = practice.instance.fetch_materializations(ONE_HOME.published, limit=1).records[0]
    for name in [*(f"nothing_of_{feed}_is_broken" for feed in BUILT_IN), "no_reject_of_tasks_is_open", INBOX_CHECK]:
        key = dg.AssetCheckKey(ONE_HOME.published, name)
        [noted] = practice.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert noted.evaluation
        made_on = noted.evaluation.target_materialization_data
        assert made_on
        assert made_on.storage_id == newest.storage_id


def test_a_broken_report_file_fails_the_publication_by_name_and_removes_no_other_asset(
    practice: Practice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish_only(monkeypatch)
    shutil.copytree(sql_folder(), tmp_path / "sql")
    (tmp_path / "sql" / "odd.sql").write_text("SELECT 1\n")
    (tmp_path / "sql" / "even.sql").write_text(
        "-- table even: Numbers.\n-- inputs: import_batch\n-- key: number\n-- column number BIGINT: A number.\n"
        "SELECT count(*) AS number FROM import_batch\n"
    )
    monkeypatch.setattr("pipelines.reports.tables.sql_folder", lambda: tmp_path / "sql")
    keys = build_definitions(practice.environ).resolve_asset_graph().get_all_asset_keys()
    assert dg.AssetKey(["reports", "even"]) in keys
    assert dg.AssetKey(["payments", "loaded"]) in keys
    before = (practice.home / "published" / "reports.duckdb").stat()
    broken = practice.run("refresh_reports")
    assert not broken.success
    assert "odd.sql" in failures(broken)
    assert (practice.home / "published" / "reports.duckdb").stat() == before
    (tmp_path / "sql" / "odd.sql").unlink()
    (tmp_path / "sql" / "even.sql").write_text(
        (tmp_path / "sql" / "even.sql").read_text() + "UNION ALL SELECT count(*) FROM import_batch\n"
    )
    doubled = practice.run("refresh_reports")
    assert not doubled.success
    assert verdicts(doubled)["keys_and_references_hold"] == (False, "ERROR")
    assert "even has one row per" in failures(doubled)


def test_a_fault_reaches_the_event_log_without_its_values(practice: Practice, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("Anna Marker, born 1970-01-01")

    monkeypatch.setattr(receiving, "receive_all", fails)
    batch_id = practice.put("answers-portal.ndjson")
    result = practice.run("import_answers", batch_id)
    assert not result.success
    assert "a fault of this program: ValueError at " in failures(result)
    assert "Marker" not in repr(result.all_events)


def test_a_step_that_meets_a_full_disk_says_so_and_is_made_again(
    practice: Practice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-IMPORT-04: like the command line. Space may be freed during the pause."""
    intend, tries = Ledger.intend, list[int]()

    def full_at_first(*given: Any, **named: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise OperationalError("insert", {}, sqlite3.OperationalError("database or disk is full"))
        return intend(*given, **named)

    monkeypatch.setattr(Ledger, "intend", full_at_first)
    monkeypatch.setattr("pipelines.dagster.loaded.AGAIN", dg.RetryPolicy(max_retries=1, delay=0))
    batch_id = practice.put("answers-portal.ndjson")
    job = build_definitions(practice.environ).get_repository_def().get_job("import_answers")
    result = job.execute_in_process(instance=practice.instance, partition_key=batch_id, raise_on_error=False)
    [again] = [event.step_retry_data for event in result.all_events if event.is_step_up_for_retry]
    assert FULL in again.error.to_string()
    assert result.success
    assert practice.batch(batch_id)["state"] == "finished"


def test_a_step_whose_client_was_revoked_is_made_again_with_the_credentials_of_then(
    practice: Practice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials of the bundled service are made again; a user may change a secret in its file."""
    intend, tries = Ledger.intend, list[int]()

    def revoked_at_first(*given: Any, **named: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            client = json.loads((practice.home / "credentials.json").read_bytes())["client_id"]
            store = practice.home / "service.duckdb"
            subprocess.run(command("fhir-service", "client", "revoke", "--store", store, client), check=True)
        return intend(*given, **named)

    monkeypatch.setattr(Ledger, "intend", revoked_at_first)
    monkeypatch.setattr("pipelines.dagster.loaded.AGAIN", dg.RetryPolicy(max_retries=1, delay=0))
    some = (SAMPLES / "inbox" / "tasks-2026-q1.csv").read_text().splitlines(keepends=True)[:4]
    batch_id = practice.put("tasks-new.csv", "".join(some))
    job = build_definitions(practice.environ).get_repository_def().get_job("import_tasks")
    result = job.execute_in_process(instance=practice.instance, partition_key=batch_id, raise_on_error=False)
    [again] = [event.step_retry_data for event in result.all_events if event.is_step_up_for_retry]
    assert "was it revoked?" in again.error.to_string()
    assert practice.batch(batch_id)["state"] == "finished"


# -- the checks


def test_a_line_lost_between_counts_and_files_is_found(
    practice: Practice, imported: tuple[list[str], dg.ExecuteInProcessResult]
) -> None:
    batch_ids, _ = imported
    folder = practice.home / "batches" / batch_ids[0] / "run-1"
    said = json.loads((folder / "validated.json").read_bytes())["validated"]
    whole = ValidationResult(folder, **said)
    assert not list(checks.every_line_is_accounted_for(whole))
    assert not list(checks.every_cent_is_accounted_for(whole))
    for name in ("lines", "records", "accepted", "amount_accepted", "amount_received"):
        lost = ValidationResult(folder, **said | {name: said[name] - 1})
        assert [*checks.every_line_is_accounted_for(lost), *checks.every_cent_is_accounted_for(lost)], name
