"""Several clinics in one Dagster: their names differ, and none sees, reports or deletes another's runs."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import GRPC_INFO_TAG, REPOSITORY_LABEL_TAG
from dagster._core.test_utils import create_run_for_test

from pipelines.dagster.alerts import of_runs
from pipelines.dagster.code_server import give_up, lost_runs
from pipelines.dagster.names import DagsterNames
from pipelines.dagster.requests import ask_for, batches_under_way
from pipelines.dagster.retention import delete_old
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.dagster_folder import BATCH_TAG, prepare_shared_dagster
from tests.support.practice import SAMPLES, Practice, materialized, observed, practicing

NORTH, SOUTH = DagsterNames("north"), DagsterNames("south")
WRONG = "payment_id,patient_id,amount,paid_on\nW1,p,1.00,2026-01-05\n"


def names_in(home: Path, clinic: str) -> dict[str, set[str]]:
    """Return all names in the definitions of a clinic."""
    environ = {"CHARTFERRY_HOME": str(home), "CHARTFERRY_CLINIC": clinic}
    repository = build_definitions(environ).get_repository_def()
    assets = repository.assets_defs_by_key
    partitions = {getattr(made.partitions_def, "name", None) for made in assets.values() if made.partitions_def}
    return {
        "assets": {key.to_user_string() for key in assets},
        "checks": {key.asset_key.to_user_string() for key in repository.asset_graph.asset_check_keys},
        "jobs": {job.name for job in repository.get_all_jobs() if job.name != "__ASSET_JOB"},
        "sensors": {each.name for each in repository.sensor_defs},
        "schedules": {each.name for each in repository.schedule_defs},
        "pools": {pool for made in assets.values() for pool in made.node_def.pools},
        "partitions": {str(name) for name in partitions},
    }


def test_every_name_of_a_clinic_begins_with_it_and_that_of_one_home_does_not_change(tmp_path: Path) -> None:
    """Assets, checks, jobs, sensors, schedules, pools and partitions."""
    of_clinic, of_home = names_in(tmp_path / "north", "north"), names_in(tmp_path / "home", "")
    for kind, found in of_clinic.items():
        sign = "/" if kind in ("assets", "checks", "partitions") else "_"
        assert found == {f"north{sign}{name}" for name in of_home[kind]}, kind
        assert found, kind
    assert of_home["pools"] == {"load"}
    assert {"payments/loaded", "reports/published", "reference/loaded"} < of_home["assets"]


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    with practicing(tmp_path_factory.mktemp("home"), served=True) as practice:
        practice.environ["CHARTFERRY_CLINIC"] = "north"
        yield practice


def test_a_file_of_a_clinic_is_a_partition_with_its_name(practice: Practice) -> None:
    """Also where the file fails; the same file of another clinic under way holds up nothing here."""
    inbox = practice.home / "inbox"
    shutil.copy(SAMPLES / "inbox" / "payments-2026-01.csv", inbox)
    (inbox / "payments-wrong.csv").write_text(WRONG)
    (inbox / "payments-wrong.csv.control.json").write_text('{"rows": 99}')
    asked = practice.tick("north_inbox").run_requests or practice.tick("north_inbox").run_requests or []
    [request] = asked
    good, wrong = request.tags[BATCH_TAG].split()
    assert request.job_name == "north_import_payments"
    assert [good, wrong] == practice.instance.get_dynamic_partitions("north/payments batches")
    assert {good[:15], wrong[:15]} == {"north/payments-"}
    result = practice.do(request)
    assert not result.success
    assert ("loaded", good) in materialized(result)
    assert observed(result)["loaded", wrong]["file"] == "payments-wrong.csv"
    run = result.dagster_run
    assert (run.tags["chartferry/clinic"], run.tags["chartferry/feed"]) == ("north", "north/payments")
    assert practice.batch(good.removeprefix("north/"))["state"] == "finished"
    assert not practice.tick("north_command_line").run_requests


def test_runs_are_asked_for_by_the_partitions_of_their_clinic() -> None:
    """A run of another clinic over a batch of the same name is not taken for one of this clinic."""
    [feed] = [feed for feed in load_feeds().feeds if feed.name == "payments"]
    with dg.DagsterInstance.ephemeral() as instance:
        for names, batch in ((NORTH, "payments-1"), (SOUTH, "payments-1"), (SOUTH, "payments-2")):
            [request], added = ask_for(instance, names, feed, [batch], "now", {batch: "payments.csv"})
            assert (request.partition_key, request.tags[BATCH_TAG]) == (names.partition(batch),) * 2
            assert request.tags["file"] == "payments.csv"
            [addition] = added
            assert (addition.partitions_def_name, list(addition.partition_keys)) == (
                f"{names.clinic}/payments batches",
                [names.partition(batch)],
            )
            create_run_for_test(instance, request.job_name or "", tags=dict(request.tags))
        assert batches_under_way(instance, NORTH, [feed]) == {"payments-1"}
        assert batches_under_way(instance, SOUTH, [feed]) == {"payments-1", "payments-2"}
        assert batches_under_way(instance, DagsterNames(), [feed]) == set()


def a_run(instance: dg.DagsterInstance, names: DagsterNames, job: str, status: str = "FAILURE", **tags: str) -> str:
    """Return a run of a clinic's code location."""
    own = {REPOSITORY_LABEL_TAG: f"__repository__@{names.clinic}"}
    now = dg.DagsterRunStatus[status]
    return str(create_run_for_test(instance, names.job(job), status=now, tags={**own, **tags}).run_id)


def test_each_clinic_sends_alerts_for_and_deletes_only_its_own_runs() -> None:
    """Dagster notes the code location of each run, whatever started it."""
    begun = datetime.now(UTC)
    with dg.DagsterInstance.ephemeral() as instance:
        about = {names: {BATCH_TAG: names.partition("payments-1")} for names in (NORTH, SOUTH)}
        imports = {names: a_run(instance, names, "import_payments", **about[names]) for names in (NORTH, SOUTH)}
        soon = begun + timedelta(hours=1)
        told = [event.about for event in of_runs(instance, begun.timestamp() - 60, soon, NORTH)]
        assert told == [{"job": "north_import_payments", "run_id": imports[NORTH], "batches": ["payments-1"]}]
        gone, stays = (a_run(instance, names, "retention") for names in (NORTH, SOUTH))
        assert delete_old(instance, soon, [], None, NORTH) == 1
        assert {run.run_id for run in instance.get_runs()} == {*imports.values(), stays}
        assert gone


def test_a_code_server_gives_up_only_the_runs_of_its_clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another clinic go on in processes of their own."""
    folder, _ = prepare_shared_dagster(tmp_path, {"north": 2, "south": 2})
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with dg.DagsterInstance.get() as instance:
        launched = {GRPC_INFO_TAG: "{}"}
        north, south = (a_run(instance, names, "import_payments", "STARTED", **launched) for names in (NORTH, SOUTH))
        give_up(lost_runs("north"))
        found = {run.run_id: run.status.value for run in instance.get_runs()}
        assert found == {north: "FAILURE", south: "STARTED"}


def test_a_clinic_whose_home_has_vanished_fails_its_checks_and_resolves_no_alert(tmp_path: Path) -> None:
    """Its disk may not be mounted: what was broken may still be."""
    home, marker = tmp_path / "home", tmp_path / "told"
    (home / "inbox").mkdir(parents=True)
    environ = {
        "CHARTFERRY_HOME": str(home),
        "CHARTFERRY_CLINIC": "north",
        "FHIR_BASE_URL": "http://127.0.0.1:1",
        "FHIR_TOKEN": "x",
        "CHARTFERRY_ALERT_COMMAND": f"tee -a {marker}",
    }
    repository = build_definitions(environ).get_repository_def()
    home.rename(tmp_path / "elsewhere")
    said = f"{home} has no folder inbox: its disk may not be mounted, and it is not made anew"

    def tick(name: str, cursor: str | None = None) -> dg.SensorResult:
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(instance, cursor, repository_def=repository)
            result = repository.get_sensor_def(f"north_{name}")(context)
        assert isinstance(result, dg.SensorResult)
        return result

    noted: list[Any] = list(tick("standing_check_after_imports").asset_events)
    assert noted
    wanted = {(False, f"What is broken could not be read: {said}.")}
    assert {(each.passed, each.description) for each in noted} == wanted
    failed = {"since": 0.0, "keys": ["failed payments-1"], "tries": {}, "last": {"failed payments-1": "It failed."}}
    tick("alerts", json.dumps(failed))
    assert [json.loads(each)["event"] for each in marker.read_text().replace("}{", "}\n{").splitlines()] == [
        "state_unknown"
    ]
    with pytest.raises(dg.Failure, match="may not be mounted"):
        tick("inbox")
    assert not home.exists()
