"""Reference data dropped into the home: loaded before the imports, each content once, what is refused is said."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from pipelines.definitions import build_definitions
from pipelines.orchestration import reference
from pipelines.orchestration.reference import to_load
from tests.commands import environment
from tests.pipelines.practice import SAMPLES, Practice, failures, materialized, verdicts

PATIENT = {"resourceType": "Patient", "id": "p1", "name": [{"family": "Marker", "given": ["Anna"]}]}


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A home without a store."""
    home = tmp_path_factory.mktemp("home")
    for name in ("inbox", "reference"):
        (home / name).mkdir()
    with dg.DagsterInstance.ephemeral() as instance:
        yield Practice(home, environment(CHARTFERRY_HOME=str(home)), instance)


def test_reference_data_is_loaded_before_the_imports_and_once(practice: Practice) -> None:
    folder = practice.home / "reference"
    for path in (SAMPLES / "reference").glob("*.ndjson"):
        (folder / path.name).write_bytes(path.read_bytes())
    practice.put("payments-2026-01.csv")
    assert practice.tick("inbox").run_requests == []
    [request] = practice.tick("inbox").run_requests or []
    assert request.job_name == "load_reference"
    result = practice.do(request)
    assert result.success, failures(result)
    about = materialized(result)["loaded", None]
    assert about["created"] == about["dagster/row_count"]
    assert about["files"] == len(list(folder.iterdir()))
    assert verdicts(result) == {"every_reference_record_was_taken": (about["refused"] == 0, "WARN")}
    assert practice.tick("inbox").run_requests == []
    [imports] = practice.tick("inbox").run_requests or []
    assert imports.job_name == "import_payments"
    (folder / "zz.ndjson").touch()
    assert [path.name for path in to_load(practice.home)] == ["zz.ndjson"]
    (folder / "zz.ndjson").unlink()


def test_a_file_that_only_looks_new_is_not_loaded_again_and_a_changed_one_is(practice: Practice) -> None:
    path = practice.home / "reference" / "more.ndjson"
    path.write_text(json.dumps({"resourceType": "Patient"}) + "\n")
    result = practice.run("load_reference")
    about = materialized(result)["loaded", None]
    refused = practice.home / "service.duckdb.refused.ndjson"
    assert about["refused_file"] == str(refused)
    assert about["refused"] == len(refused.read_text().splitlines())
    assert "more.ndjson" in refused.read_text()
    assert verdicts(result) == {"every_reference_record_was_taken": (False, "WARN")}
    path.write_bytes(path.read_bytes())
    assert to_load(practice.home) == []
    path.write_text(json.dumps(PATIENT) + "\n")
    assert to_load(practice.home) == [path]
    assert "Marker" not in repr(practice.run("load_reference").all_events)
    assert to_load(practice.home) == []
    (practice.home / "service.duckdb").rename(practice.home / "other.duckdb")
    (practice.home / "service.duckdb").write_bytes((practice.home / "other.duckdb").read_bytes())
    assert len(to_load(practice.home)) > 1


def test_another_target_takes_no_reference_data_from_here(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "patients.ndjson").write_text("{}")
    environ = {"CHARTFERRY_HOME": str(tmp_path), "FHIR_BASE_URL": "http://127.0.0.1:9", "FHIR_TOKEN": "t"}
    repository = build_definitions(environ).get_repository_def()
    assert not repository.has_job(reference.JOB)
    assert reference.REFERENCE not in repository.asset_graph.get_all_asset_keys()
    with dg.DagsterInstance.ephemeral() as instance:
        looked = repository.get_sensor_def("inbox")(dg.build_sensor_context(instance, repository_def=repository))
    assert isinstance(looked, dg.SkipReason)
