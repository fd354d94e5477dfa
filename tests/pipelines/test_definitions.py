"""The definitions as Dagster loads them, and imports of the samples through them, against the bundled service."""

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import duckdb
import pytest
from dagster._core.events import DagsterEventType

from pipelines import checks
from pipelines.definitions import build_definitions
from pipelines.feeds.catalog import load_feeds
from pipelines.orchestration import imports
from pipelines.orchestration.imports import batch_id_of
from pipelines.orchestration.instance import prepare_dagster_home
from pipelines.pipeline import Result
from pipelines.session import open_ledger
from pipelines.validate import Validated
from tests.commands import environment

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
STAGES = ("received", "validated", "loaded")
BUILT_IN = ("answers", "payments", "tasks")


@dataclass
class Practice:
    """A home whose service holds the samples' reference data, its environment, and a Dagster instance of its own."""

    home: Path
    environ: dict[str, str]
    instance: dg.DagsterInstance

    def put(self, name: str, text: str | None = None) -> str:
        """Puts a sample, or a file of this text, into the inbox as a partition; gives its batch."""
        path = self.home / "inbox" / name
        path.parent.mkdir(exist_ok=True)
        if text is None:
            shutil.copy(SAMPLES / "inbox" / name, path)
        else:
            path.write_text(text)
        feed = load_feeds().match(name)
        assert feed
        batch_id = batch_id_of(feed, path)
        self.instance.add_dynamic_partitions(f"{feed.name} batches", [batch_id])
        return batch_id

    def run(self, job: str, *batch_ids: str) -> dg.ExecuteInProcessResult:
        tags = {}
        if len(batch_ids) > 1:
            tags = {
                "dagster/asset_partition_range_start": batch_ids[0],
                "dagster/asset_partition_range_end": batch_ids[-1],
            }
        return (
            build_definitions(self.environ)
            .get_repository_def()
            .get_job(job)
            .execute_in_process(
                instance=self.instance,
                partition_key=batch_ids[0] if len(batch_ids) == 1 else None,
                tags=tags,
                raise_on_error=False,
            )
        )

    def batch(self, batch_id: str) -> dict[str, object]:
        ledger = open_ledger(self.home, self.environ)
        try:
            [row] = [row for row in ledger.batches() if row["batch_id"] == batch_id]
            return row
        finally:
            ledger.close()


def command(module: str, *arguments: str, environ: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], env=environ, check=False, capture_output=True)


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    home = tmp_path_factory.mktemp("home")
    environ = environment(CHARTFERRY_HOME=str(home))
    command(
        "fhir_service", "load", "--store", str(home / "service.duckdb"), str(SAMPLES / "reference"), environ=environ
    )
    with dg.DagsterInstance.ephemeral() as instance:
        yield Practice(home, environ, instance)


def materialized(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str | None], dict[str, object]]:
    """Metadata values by stage and partition."""
    events = [event.materialization for event in result.all_events if event.is_step_materialization]
    return {
        (event.asset_key.path[-1], event.partition): {name: m.value for name, m in event.metadata.items()}
        for event in events
    }


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    found = [e for e in result.all_events if e.event_type == DagsterEventType.ASSET_CHECK_EVALUATION]
    datas = [e.asset_check_evaluation_data for e in found]
    return {data.check_name: (data.passed, data.severity.value) for data in datas}


def failures(result: dg.ExecuteInProcessResult) -> str:
    return " ".join(str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure)


# -- the definitions


def test_the_definitions_load_without_a_warning_and_say_what_everything_is(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        definitions = build_definitions({"CHARTFERRY_HOME": str(tmp_path)})
        dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    keys = {tuple(key.path) for key in graph.get_all_asset_keys()}
    reports = {("reports", "diagnostic_report_sweep"), ("reports", "published")}
    assert keys == {(feed, stage) for feed in BUILT_IN for stage in STAGES} | reports
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.group_name == key.path[0]
        assert node.description
        assert node.owners
        assert node.kinds
        assert node.code_version
    repository = definitions.get_repository_def()
    assert repository.get_sensor_def("inbox").default_status == dg.DefaultSensorStatus.RUNNING
    assert repository.get_schedule_def("refresh_reports").default_status == dg.DefaultScheduleStatus.RUNNING


def test_lineage_reads_received_validated_loaded_published() -> None:
    graph = build_definitions({}).resolve_asset_graph()
    parents = {
        tuple(key.path): {tuple(p.path) for p in graph.get(key).parent_keys} for key in graph.get_all_asset_keys()
    }
    assert parents["payments", "received"] == set()
    assert parents["payments", "validated"] == {("payments", "received")}
    assert parents["payments", "loaded"] == {("payments", "validated")}
    loaded = {(feed, "loaded") for feed in BUILT_IN}
    assert parents["reports", "published"] == {("reports", "diagnostic_report_sweep"), *loaded}


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


def test_dagsters_settings_are_valid_written_once_and_send_nothing(tmp_path: Path) -> None:
    folder = prepare_dagster_home(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        with dg.DagsterInstance.from_config(str(folder)) as instance:
            assert not instance.telemetry_enabled
            assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
            queue = instance.get_concurrency_config().run_queue_config
            assert queue
            assert queue.max_concurrent_runs == 2
            assert instance.run_retries_enabled
            assert instance.run_monitoring_enabled
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_dagster_home(tmp_path)
    assert (folder / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_tables_are_published_once_when_imports_have_ended(tmp_path: Path) -> None:
    definitions = build_definitions({"CHARTFERRY_HOME": str(tmp_path)})
    loaded, published = dg.AssetKey(["payments", "loaded"]), dg.AssetKey(["reports", "published"])
    sweep = dg.AssetKey(["reports", "diagnostic_report_sweep"])
    selected = dg.AssetSelection.assets(sweep, published)
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.evaluate_automation_conditions(definitions, instance, selected)
        assert (first.get_num_requested(sweep), first.get_num_requested(published)) == (1, 1)
        instance.report_runless_asset_event(dg.AssetMaterialization(sweep))
        instance.report_runless_asset_event(dg.AssetMaterialization(published))
        second = dg.evaluate_automation_conditions(definitions, instance, selected, cursor=first.cursor)
        assert second.get_num_requested(sweep) == 0
        instance.add_dynamic_partitions("payments batches", ["payments-1", "payments-2"])
        for batch_id in ("payments-1", "payments-2"):
            instance.report_runless_asset_event(dg.AssetMaterialization(loaded, partition=batch_id))
        third = dg.evaluate_automation_conditions(definitions, instance, selected, cursor=second.cursor)
        assert third.get_num_requested(published) == 1
        instance.report_runless_asset_event(dg.AssetMaterialization(published))
        fourth = dg.evaluate_automation_conditions(definitions, instance, selected, cursor=third.cursor)
        assert fourth.get_num_requested(published) == 0


# -- what an import does


@pytest.fixture(scope="module")
def imported(practice: Practice) -> tuple[list[str], dg.ExecuteInProcessResult]:
    """Two sample files of payments in one run."""
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
        assert round(loaded["amount_created"] * 100) == row["amount_created"]  # type: ignore[operator]
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
    assert verdicts(result) == {
        "the_pages_hold_what_the_total_says": (True, "ERROR"),
        "the_tables_agree_with_the_ledger": (True, "ERROR"),
    }


def test_a_fault_reaches_the_event_log_without_its_values(practice: Practice, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("Anna Marker, born 1970-01-01")

    monkeypatch.setattr(imports, "_receive_all", fails)
    batch_id = practice.put("answers-portal.ndjson")
    result = practice.run("import_answers", batch_id)
    assert not result.success
    assert "ValueError: a fault of ours" in failures(result)
    assert "Marker" not in repr(result.all_events)


# -- the checks


def loaded_batch(**counts: int) -> checks.LoadedBatch:
    rows = {"created": (2, 700), "skipped": (1, 300)}
    given = {"records": 4, "accepted": 3, "rejected": 1, "created": 2, "skipped": 1, "amount_created": 700} | counts
    return checks.LoadedBatch(Result("b", 1, "payments", "payments.csv", "finished", given), rows, first=True)


@pytest.mark.parametrize(
    ("statement", "counts"),
    [
        ("every_accepted_record_has_an_outcome", {"created": 1}),
        ("every_accepted_record_has_an_outcome", {"rejected": 0}),
        ("the_ledger_says_the_same", {"created": 3}),
        ("the_ledger_says_the_same", {"amount_created": 701}),
        ("no_row_is_in_doubt", {"in_doubt": 1}),
        ("every_record_was_taken", {}),
    ],
)
def test_a_check_fails_when_a_row_or_a_cent_is_lost(statement: str, counts: dict[str, int]) -> None:
    [found] = [each for each in checks.AFTER_LOAD if each.name == statement]
    assert list(found.violations(loaded_batch(**counts)))
    if counts:
        assert not list(found.violations(loaded_batch()))


def test_a_line_lost_between_counts_and_files_is_found(
    practice: Practice, imported: tuple[list[str], dg.ExecuteInProcessResult]
) -> None:
    batch_ids, _ = imported
    folder = practice.home / "batches" / batch_ids[0] / "run-1"
    said = json.loads((folder / "validated.json").read_bytes())["validated"]
    whole = Validated(folder, **said)
    assert not list(checks.every_line_is_accounted_for(whole))
    assert not list(checks.every_cent_is_accounted_for(whole))
    for name in ("lines", "records", "accepted", "amount_accepted", "amount_received"):
        lost = Validated(folder, **said | {name: said[name] - 1})
        assert [*checks.every_line_is_accounted_for(lost), *checks.every_cent_is_accounted_for(lost)], name
