"""`deploy/dagster-kubernetes.yaml`, without a cluster: held against the schemas of Kubernetes and of dagster-k8s."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

from pipelines.dagster.executors import EXECUTORS
from pipelines.dagster.guard import Guard
from pipelines.home.dagster_folder import DAGSTER_YAML, NEEDED

pytestmark = pytest.mark.skipif(
    find_spec("dagster_k8s") is None, reason="the extra `kubernetes` is not installed"
)  # it takes long to import: those that need it do so themselves

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "dagster-kubernetes.yaml").read_text()))
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in DOCUMENTS}
INSTANCE: dict[str, Any] = yaml.safe_load(BY_NAME["ConfigMap", "dagster-instance"]["data"]["dagster.yaml"])
LAUNCHER: dict[str, Any] = INSTANCE["run_launcher"]["config"]
SETTINGS: dict[str, str] = BY_NAME["ConfigMap", "chartferry-import"]["data"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[f"{kind} {name}" for kind, name in BY_NAME])
def test_kubernetes_has_the_fields_that_are_named(document: dict[str, Any]) -> None:
    from dagster_k8s.models import k8s_model_from_dict, k8s_snake_case_dict
    from kubernetes import client as k8s  # type: ignore[import-untyped]

    model: Any = getattr(k8s, f"V1{document['kind']}")
    made: Any = k8s_model_from_dict(model, k8s_snake_case_dict(model, document))
    assert made.metadata.name == document["metadata"]["name"]


def test_dagster_has_the_settings_of_the_instance_and_those_that_an_import_needs() -> None:
    from dagster._config import validate_config
    from dagster._core.instance.config import dagster_instance_config_schema
    from dagster_k8s import K8sRunLauncher

    found = validate_config(dagster_instance_config_schema(), INSTANCE)
    assert found.success, found.errors
    found = validate_config(K8sRunLauncher.config_type(), LAUNCHER)
    assert found.success, found.errors
    assert all(INSTANCE[block][name] for block, name in NEEDED)
    usual: dict[str, Any] = yaml.safe_load(DAGSTER_YAML)
    for block in ("telemetry", "nux", "concurrency", "run_queue", "run_retries", "auto_materialize", "freshness"):
        assert INSTANCE[block] == usual[block], block
    assert SETTINGS["CHARTFERRY_EXECUTOR"] in EXECUTORS
    assert SETTINGS["DAGSTER_HOME"] == LAUNCHER["dagster_home"]


def test_homes_are_made_by_their_user_and_dagster_writes_to_the_same_volume() -> None:
    """The folder of an `emptyDir` is root's, and so is what a mount within it needs: no home can be there."""
    every = [LAUNCHER["volume_mounts"]]
    every += [each["volumeMounts"] for name in ("chartferry-code", "dagster") for each in containers(name).values()]
    for mounts in every:
        places = [Path(each["mountPath"]) for each in mounts]
        assert not [place for place in places if set(place.parents) & {*places}]
        [scratch] = [Path(each["mountPath"]) for each in mounts if each["name"] == "scratch"]
        written = [INSTANCE[block]["config"]["base_dir"] for block in ("local_artifact_storage", "compute_logs")]
        assert all(scratch in Path(each).parents for each in (SETTINGS["CHARTFERRY_HOME"], *written))


def test_the_job_of_a_run_has_its_requests_its_priority_and_its_end() -> None:
    """It is put together by dagster-k8s, as for a cluster."""
    from dagster_k8s.job import DagsterK8sJobConfig, UserDefinedDagsterK8sConfig, construct_dagster_k8s_job
    from dagster_k8s.models import k8s_snake_case_dict
    from kubernetes import client as k8s

    config = DagsterK8sJobConfig(
        **{name: LAUNCHER[name] for name in ("job_image", "dagster_home", "instance_config_map", "resources")},
        **{name: LAUNCHER[name] for name in ("env_config_maps", "env_secrets", "service_account_name")},
        volumes=[k8s_snake_case_dict(k8s.V1Volume, each) for each in LAUNCHER["volumes"]],
        volume_mounts=[k8s_snake_case_dict(k8s.V1VolumeMount, each) for each in LAUNCHER["volume_mounts"]],
    )
    own = UserDefinedDagsterK8sConfig.from_dict(LAUNCHER["run_k8s_config"])
    job: Any = construct_dagster_k8s_job(config, ["dagster", "api"], "run", own).to_dict()
    assert (job["spec"]["ttl_seconds_after_finished"], job["spec"]["backoff_limit"]) == (3600, 0)
    pod = job["spec"]["template"]["spec"]
    assert pod["priority_class_name"] == BY_NAME["PriorityClass", "chartferry-runs"]["metadata"]["name"]
    assert pod["security_context"]["run_as_user"] == 10001
    [container] = pod["containers"]
    assert container["image"] == LAUNCHER["job_image"]
    assert {name: container["resources"][name] for name in LAUNCHER["resources"]} == LAUNCHER["resources"]
    places = {each["mount_path"] for each in container["volume_mounts"]}
    scratch = str(Path(SETTINGS["CHARTFERRY_HOME"]).parent)
    assert {scratch, SETTINGS["CHARTFERRY_FEEDS"], SETTINGS["DAGSTER_HOME"]} == places


def containers(deployment: str) -> dict[str, dict[str, Any]]:
    """The containers of a deployment, by name."""
    return {each["name"]: each for each in BY_NAME["Deployment", deployment]["spec"]["template"]["spec"]["containers"]}


def secrets(container: dict[str, Any]) -> list[str]:
    return [each["secretRef"]["name"] for each in container["envFrom"] if "secretRef" in each]


def test_pages_and_daemon_have_the_secret_of_the_storage_alone() -> None:
    every = LAUNCHER["env_secrets"]
    assert sorted(every) == ["chartferry-import", "dagster-storage"]
    assert {name: secrets(each) for name, each in containers("dagster").items()} == {
        "pages": ["dagster-storage"],
        "daemon": ["dagster-storage"],
    }
    assert secrets(containers("chartferry-code")["code"]) == every


def test_the_pages_are_those_with_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, option, module, *given, workspace = containers("dagster")["pages"]["args"]
    assert (python, option) == ("python", "-m")
    assert Path(workspace).name in BY_NAME["ConfigMap", "dagster-instance"]["data"]
    assert str(Path(workspace).parent) in {each["mountPath"] for each in containers("dagster")["pages"]["volumeMounts"]}
    (own := tmp_path / "workspace.yaml").write_text("load_from: []\n")
    served: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **settings: served.append((type(app), settings)))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.delenv("CHARTFERRY_WEB_HOST", raising=False)
    monkeypatch.setattr(sys, "argv", ["web", *given, str(own)])
    monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_module(module, run_name="__main__")
    assert served == [(Guard, {"host": "127.0.0.1", "port": 3000, "log_level": "warning"})]


def test_nothing_is_published_there_to_a_place_that_a_new_home_is_refused_at() -> None:
    assert "CHARTFERRY_COPIES" not in SETTINGS
