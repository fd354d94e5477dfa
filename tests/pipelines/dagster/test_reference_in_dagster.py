"""Reference data dropped into the home: loaded before the imports, each content once, what is refused is said."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from pipelines.dagster import reference
from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.reference import looks_new
from pipelines.definitions import build_definitions
from tests.support.called import called
from tests.support.commands import environment
from tests.support.practice import SAMPLES, Practice, failures, materialized, verdicts

PATIENT = {"resourceType": "Patient", "id": "p1", "name": [{"family": "Marker", "given": ["Anna"]}]}


@pytest.fixture(autouse=True)
def nothing_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow a test is, its files have just been written."""
    monkeypatch.setattr("pipelines.dagster.inbox.files.QUIET", timedelta(days=1))


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    with empty_home(tmp_path_factory.mktemp("home")) as practice:
        yield practice


@contextmanager
def empty_home(home: Path) -> Iterator[Practice]:
    """A home without a store."""
    for name in ("inbox", "reference"):
        (home / name).mkdir()
    with dg.DagsterInstance.ephemeral() as instance:
        yield Practice(home, environment(CHARTFERRY_HOME=str(home)), instance)


def test_reference_data_is_loaded_before_the_imports_and_once(practice: Practice) -> None:
    folder = practice.home / "reference"
    for path in (SAMPLES / "reference").glob("*.ndjson"):  # the first records of each: all take seconds
        (folder / path.name).write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:20]))
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
    assert [path.name for path in looks_new(practice.home)] == ["zz.ndjson"]
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
    os.utime(path, ns=(1, 1))
    assert materialized(practice.run("load_reference"))["loaded", None]["files"] == 0
    assert looks_new(practice.home) == []
    path.write_text(json.dumps(PATIENT) + "\n")
    assert looks_new(practice.home) == [path]
    assert "Marker" not in repr(practice.run("load_reference").all_events)
    assert looks_new(practice.home) == []
    (practice.home / "service.duckdb").rename(practice.home / "other.duckdb")
    (practice.home / "service.duckdb").write_bytes((practice.home / "other.duckdb").read_bytes())
    assert len(looks_new(practice.home)) > 1


@pytest.mark.long
def test_reference_data_loaded_after_a_backup_is_loaded_again_once_that_backup_is_restored(tmp_path: Path) -> None:
    """`cp` keeps the file's inode; the store itself says what it holds."""
    with empty_home(tmp_path) as practice:
        store, folder = practice.home / "service.duckdb", practice.home / "reference"
        (folder / "a.ndjson").write_text(json.dumps(PATIENT) + "\n")
        assert practice.run("load_reference").success
        backup = store.read_bytes()
        (folder / "b.ndjson").write_text(json.dumps(PATIENT | {"id": "p2"}) + "\n")
        assert materialized(practice.run("load_reference"))["loaded", None]["created"] == 1
        assert looks_new(practice.home) == []
        with store.open("r+b") as file:
            file.truncate()
            file.write(backup)
        assert called("check", "--store", store).exit_code == 0
        assert [path.name for path in looks_new(practice.home)] == ["a.ndjson", "b.ndjson"]
        about = materialized(practice.run("load_reference"))["loaded", None]
        assert (about["created"], about["unchanged"]) == (1, 1)
        assert looks_new(practice.home) == []


@pytest.mark.alike
@pytest.mark.parametrize("name", ["", "Care Plan", pytest.param("Patient  ", marks=pytest.mark.long)])
def test_a_record_without_a_readable_type_is_refused_with_file_and_line_and_imports_go_on(
    tmp_path: Path, name: str
) -> None:
    with empty_home(tmp_path) as practice:
        lines = [json.dumps(each) for each in (PATIENT, {"resourceType": name, "id": "x"} if name else {"id": "x"})]
        (practice.home / "reference" / "more.ndjson").write_text("\n".join(lines) + "\n")
        result = practice.run("load_reference")
        assert result.success, failures(result)
        about = materialized(result)["loaded", None]
        assert (about["created"], about["refused"]) == (1, 1)
        [made] = result.get_asset_check_evaluations()
        assert made.description == "refused: more.ndjson line 2; service.duckdb.refused.ndjson has the reasons"
        [still] = practice.run("load_reference").get_asset_check_evaluations()
        assert (still.passed, still.description) == (
            False,
            made.description,
        )  # nothing new came, and nothing was mended
        practice.put("payments-2026-01.csv")
        practice.tick("inbox")
        assert [request.job_name for request in practice.tick("inbox").run_requests or ()] == ["import_payments"]


@pytest.mark.long
def test_a_file_that_holds_no_reference_data_is_refused_and_holds_up_no_other(tmp_path: Path) -> None:
    with empty_home(tmp_path) as practice:
        (practice.home / "reference" / "good.ndjson").write_text(json.dumps(PATIENT) + "\n")
        foreign = practice.home / "reference" / "foreign.ndjson"
        foreign.write_text("id,name\n1,Marker\n")
        result = practice.run("load_reference")
        assert result.success, failures(result)
        about = materialized(result)["loaded", None]
        assert (about["created"], about["refused"]) == (1, 1)
        [made] = result.get_asset_check_evaluations()
        assert made.description
        assert made.description.startswith("refused: foreign.ndjson line 1;")
        assert looks_new(practice.home) == []
        foreign.write_text(json.dumps(PATIENT | {"id": "p2"}) + "\n")
        assert materialized(practice.run("load_reference"))["loaded", None]["created"] == 1


def test_a_file_that_looks_new_is_not_read_by_the_sensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> str:
        raise AssertionError(path)

    with empty_home(tmp_path) as practice:
        path = practice.home / "reference" / "large.ndjson"
        path.write_text(json.dumps(PATIENT) + "\n")
        assert practice.run("load_reference").success
        os.utime(path, ns=(1, 1))
        monkeypatch.setattr(reference, "sha256_of", read)
        practice.tick("inbox")
        [request] = practice.tick("inbox").run_requests or ()
        assert request.job_name == "load_reference"


def test_a_file_name_that_is_not_utf_8_is_shown_escaped(tmp_path: Path) -> None:
    """Dagster cannot store it otherwise: the sensor would fail at each look, and nothing would be imported."""
    with empty_home(tmp_path) as practice:
        (practice.home / "reference" / os.fsdecode(b"patients\xff.ndjson")).write_bytes(b"")
        result = practice.tick("inbox")
    assert result.skip_reason
    assert result.skip_reason.skip_message == r"Imports wait for reference data: patients\xff.ndjson."


def test_another_target_takes_no_reference_data_from_here(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "patients.ndjson").write_text("{}")
    environ = {"CHARTFERRY_HOME": str(tmp_path), "FHIR_BASE_URL": "http://127.0.0.1:9", "FHIR_TOKEN": "t"}
    repository = build_definitions(environ).get_repository_def()
    assert not repository.has_job(reference.JOB)
    assert ONE_HOME.reference not in repository.asset_graph.get_all_asset_keys()
    with dg.DagsterInstance.ephemeral() as instance:
        looked = repository.get_sensor_def("inbox")(dg.build_sensor_context(instance, repository_def=repository))
    assert isinstance(looked, dg.SkipReason)
