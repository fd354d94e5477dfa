"""Imports by `chartferry` appear on the pages of Dagster: partitions with states, by runs that import nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from pipelines.dagster import command_line
from pipelines.dagster.names import ONE_HOME
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.dagster_folder import BATCH_TAG
from tests.support.practice import SAMPLES, Practice, failures, materialized, practicing


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A practice whose command line imported a good file and one that is not what its control totals say."""
    with practicing(tmp_path_factory.mktemp("home"), served=True) as practice:
        inbox = practice.home / "inbox"
        shutil.copy(SAMPLES / "inbox" / "payments-2026-01.csv", inbox)
        (inbox / "payments-wrong.csv").write_text("payment_id,patient_id,amount,paid_on\nW1,p,1.00,2026-01-05\n")
        (inbox / "payments-wrong.csv.control.json").write_text('{"rows": 99}')
        done = practice.command("import", "--json")
        assert done.returncode == 4, done.stderr
        yield practice


def states(practice: Practice, stage: str) -> tuple[set[str], set[str]]:
    """Partitions of payments that are materialized, and those that failed."""
    feed = load_feeds().named("payments")
    assert feed
    key, batches = dg.AssetKey(["payments", stage]), ONE_HOME.batches_of(feed)
    with dg._core.definitions.partitions.context.partition_loading_context(dynamic_partitions_store=practice.instance):
        value = get_and_update_asset_status_cache_value(practice.instance, key, batches)
        assert value
        done = value.deserialize_materialized_partition_subsets(batches).get_partition_keys()
        failed = value.deserialize_failed_partition_subsets(batches).get_partition_keys()
    return set(done), set(failed)


def _by_rule(table: object) -> dict[str, int]:
    assert isinstance(table, dg.TableMetadataValue)
    return {str(each.data["rule"]): int(str(each.data["records"])) for each in table.records}


def test_batches_of_the_command_line_become_partitions_with_their_states(practice: Practice) -> None:
    asked = practice.tick("command_line").run_requests or []
    [good, wrong] = practice.instance.get_dynamic_partitions("payments batches")
    before = practice.batch(good)
    for request in asked:
        result = practice.do(request)
        assert not result.success
        assert wrong in failures(result)
        assert good not in failures(result)
        found = materialized(result)["loaded", good]
        assert (found["created"], found["state"]) == (before["created"], "finished")
        set_aside, rejected = _by_rule(found["set_aside_by_rule"]), materialized(result)["validated", good]
        assert set_aside["business-rule"] == before["refused"] == 6
        assert _by_rule(rejected["rejects_by_rule"]) == {k: n for k, n in set_aside.items() if k != "business-rule"}
        assert sum(_by_rule(rejected["rejects_by_rule"]).values()) == rejected["rejected"] == 7
    assert practice.batch(good) == before
    assert len(asked) == 1
    assert states(practice, "received") == ({good, wrong}, set())
    assert states(practice, "loaded") == ({good}, {wrong})
    again = practice.tick("command_line")
    assert not again.run_requests


@pytest.mark.long
def test_runs_of_dagster_itself_are_not_shown_a_second_time(practice: Practice) -> None:
    practice.tick("command_line")
    batch_id = practice.put("payments-2026-03.ndjson")
    assert practice.run("import_payments", batch_id).success
    assert not practice.tick("command_line").run_requests
    done = practice.command("rejects", "retry", "--json")
    assert done.returncode in (0, 3), done.stderr


def test_batches_of_a_dagster_that_lost_its_storage_are_shown_again(practice: Practice) -> None:
    batch_id = practice.put("payments-2026-02.csv.gz")
    assert practice.run("import_payments", batch_id).success

    def told() -> set[str]:
        practice.cursors["command_line"] = None
        asked = practice.tick("command_line").run_requests or ()
        return {batch for request in asked for batch in request.tags[BATCH_TAG].split()}

    assert batch_id not in told()
    practice.instance.delete_dynamic_partition("payments batches", batch_id)
    assert batch_id in told()


def test_a_ledger_with_many_runs_is_shown_over_several_looks(
    practice: Practice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "RUNS_A_LOOK", 1)
    practice.cursors["command_line"] = None
    told = [request.partition_key for _ in range(6) for request in practice.tick("command_line").run_requests or ()]
    assert {each.split("-")[0] for each in told if each} == {"payments"}
    assert len(set(told)) >= 2


def test_a_partition_shows_the_undo_of_its_batch_as_its_newest_state(practice: Practice) -> None:
    """It stays green, since Dagster has no such state, and its metadata says how many rows are left."""
    row = "UNDONE1,p123,call,requested,dr-07\n"
    (practice.home / "inbox" / "tasks-undone.csv").write_text(
        f"task_id,patient_id,description,status,requester_id\n{row}{row}"
    )
    done = practice.command("import", "--json")
    [request] = [each for each in practice.tick("command_line").run_requests or () if each.job_name == "import_tasks"]
    batch_id = str(request.partition_key)
    found = materialized(practice.do(request))["loaded", batch_id]
    assert (found["state"], found["dagster/row_count"]) == ("finished", 1), done.stdout
    undone = practice.command("undo", batch_id)
    assert undone.returncode == 0, undone.stderr
    [event] = list(practice.tick("command_line").asset_events or [])
    assert isinstance(event, dg.AssetMaterialization)
    assert (event.asset_key, event.partition) == (dg.AssetKey(["tasks", "loaded"]), batch_id)
    assert event.description == "tasks-undone.csv: 1 of its 1 record at the target was taken back by undo."
    told = {name: value.value for name, value in event.metadata.items()}
    assert {name: told[name] for name in ("file", "state", "taken_back", "dagster/row_count")} == {
        "file": "tasks-undone.csv",
        "state": "taken back",
        "taken_back": 1,
        "dagster/row_count": 0,
    }
    assert not practice.tick("command_line").asset_events
    practice.cursors["command_line"] = None  # as of a Dagster that begins with this ledger
    fresh = practice.tick("command_line")
    assert not [each for each in fresh.asset_events or () if each.partition == batch_id]
    [again] = [each for each in fresh.run_requests or () if each.job_name == "import_tasks"]
    assert materialized(practice.do(again))["loaded", batch_id]["state"] == "taken back"


def test_no_ledger_is_no_failure(tmp_path: Path) -> None:
    from pipelines.definitions import build_definitions

    repository = build_definitions({"CHARTFERRY_HOME": str(tmp_path)}).get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, repository_def=repository)
        assert isinstance(repository.get_sensor_def("command_line")(context), dg.SkipReason)
