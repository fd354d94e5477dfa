"""Imports whose steps are spread: the parts of a batch are loaded by several steps, and all is as by one."""

import logging
import warnings
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from pipelines.dagster import loaded
from pipelines.dagster.executors import celery_settings, executor_of
from pipelines.definitions import build_definitions
from pipelines.runs import parts
from tests.support.practice import failures, materialized, practicing, verdicts

pytestmark = [
    pytest.mark.skipif(find_spec(name) is None, reason=f"the extra `{of}` is not installed")
    for name, of in {"dagster_celery": "celery", "dagster_k8s": "kubernetes"}.items()
]  # the second takes long to import
BROKER = {"CHARTFERRY_BROKER": "redis://:secret@10.0.0.2:6379/0"}
LOADED = "payments__loaded"


@pytest.mark.parametrize("executor", ["celery", "kubernetes", "processes"])
def test_imports_have_the_executor_that_is_asked_for_and_other_jobs_have_not(tmp_path: Path, executor: str) -> None:
    environ = {"CHARTFERRY_HOME": str(tmp_path), "CHARTFERRY_EXECUTOR": executor, **BROKER}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        definitions = build_definitions(environ)
        dg.Definitions.validate_loadable(definitions)
    one_step = build_definitions({"CHARTFERRY_HOME": str(tmp_path)})
    usual = one_step.resolve_job_def("import_payments").executor_def
    assert definitions.resolve_job_def("import_payments").executor_def.name != usual.name
    assert definitions.resolve_job_def("refresh_reports").executor_def.name == usual.name
    described = [each.resolve_asset_graph() for each in (one_step, definitions)]
    for key in described[0].get_all_asset_keys():
        one, several = (graph.get(key) for graph in described)
        for name in ("description", "metadata", "tags", "owners", "kinds", "group_name", "code_version", "pools"):
            assert getattr(one, name) == getattr(several, name), name
        assert one.check_keys == several.check_keys
        assert one.parent_keys == several.parent_keys


def test_a_setting_that_is_wrong_or_lacks_its_broker_is_reported_in_one_sentence(tmp_path: Path) -> None:
    home = {"CHARTFERRY_HOME": str(tmp_path)}
    with pytest.raises(
        dg.DagsterInvalidDefinitionError, match=r"^CHARTFERRY_EXECUTOR is not one of celery, kubernetes"
    ):
        build_definitions({**home, "CHARTFERRY_EXECUTOR": "dask"})
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"^CHARTFERRY_BROKER must name a broker"):
        build_definitions({**home, "CHARTFERRY_EXECUTOR": "celery"})
    for seconds in ("6h", "29", "-1", "nan", "inf"):
        with pytest.raises(dg.DagsterInvalidDefinitionError, match=rf"^CHARTFERRY_STEP_SECONDS must .*: '{seconds}'$"):
            celery_settings({**BROKER, "CHARTFERRY_STEP_SECONDS": seconds})


@pytest.mark.parametrize("executor", ["celery", "kubernetes"])
def test_an_executor_of_other_hosts_wants_its_extra_and_is_for_one_home(
    executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCALE-04: a worker with the settings of one clinic would make the steps of another."""
    environ = {"CHARTFERRY_EXECUTOR": executor, **BROKER}
    of_north = f"^CHARTFERRY_EXECUTOR is {executor}, .*one home: unset it$"
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=of_north):
        executor_of({**environ, "CHARTFERRY_CLINIC": "north"})
    assert executor_of({"CHARTFERRY_EXECUTOR": "processes", "CHARTFERRY_CLINIC": "north"})
    monkeypatch.setattr("pipelines.home.executor.find_spec", lambda name: None)
    lacking = rf"^CHARTFERRY_EXECUTOR needs dagster-\w+, .*: pip install 'chartferry\[{executor}\]'$"
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=lacking):
        executor_of(environ)


def test_several_steps_load_the_parts_of_a_batch_and_the_last_one_reports_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCALE-02: a small file is loaded without these steps."""
    monkeypatch.setattr(parts, "ROWS_A_WORKER", 2)
    with practicing(tmp_path, served=True) as practice:
        practice.environ |= {"CHARTFERRY_EXECUTOR": "processes", "CHARTFERRY_WORKERS": "3"}
        batch_id = practice.put("payments-2026-01.csv")
        result = practice.run("import_payments", batch_id)
        assert result.success, failures(result)
        steps = {each.step_key for each in result.all_events if each.is_step_success}
        named = {"plan", "hold[1]", "join[2]", "join[3]", "end"}
        assert {f"{LOADED}.{LOADED}__{name}" for name in named} < steps
        row, loaded = practice.batch(batch_id), materialized(result)["loaded", batch_id]
        assert (row["state"], loaded["state"], loaded["run"]) == ("finished", "finished", 1)
        assert loaded["created"] == row["created"]
        assert loaded["created"]
        assert verdicts(result)["the_ledger_says_the_same"] == (True, "ERROR")
        assert list((tmp_path / "batches" / batch_id).glob("run-1/parts-*.json"))
        monkeypatch.setattr(parts, "ROWS_A_WORKER", 25_000)
        small = practice.run("import_payments", practice.put("payments-2026-03.ndjson"))
        assert small.success, failures(small)
        steps = {each.step_key for each in small.all_events if each.is_step_success}
        assert {each for each in steps if LOADED in str(each)} == {
            f"{LOADED}.{LOADED}__plan",
            f"{LOADED}.{LOADED}__end",
        }


@pytest.mark.parametrize(
    ("ended_at", "tries", "comes_again"), [(None, 0, True), (None, loaded.TRIES, False), (1.5, 0, False)]
)
def test_a_step_that_finds_no_leader_is_retried_until_the_leading_step_has_ended(
    monkeypatch: pytest.MonkeyPatch, ended_at: float | None, tries: int, comes_again: bool
) -> None:
    """The leading step may be lost, and then needs this one's slot."""
    place = SimpleNamespace(session=lambda _: None)
    monkeypatch.setattr(loaded, "workplace_of", lambda _: nullcontext(place))
    monkeypatch.setattr(loaded, "batches_in", lambda _: [])
    monkeypatch.setattr(loaded, "join_all", lambda *_: 0)
    run, states = SimpleNamespace(status=dg.DagsterRunStatus.STARTED), [SimpleNamespace(end_time=ended_at)]
    instance = SimpleNamespace(get_run_by_id=lambda _: run, get_run_step_stats=lambda *_: states)
    context: Any = SimpleNamespace(
        instance=instance, run_id="a run", log=logging, retry_number=tries, get_mapping_key=lambda: "2"
    )
    feed: Any = None
    if comes_again:
        with pytest.raises(dg.RetryRequested):
            loaded._join(context, feed, "hold")
    else:
        loaded._join(context, feed, "hold")


def test_a_worker_takes_one_step_at_a_time_and_gives_up_none_whose_process_was_killed() -> None:
    asked = celery_settings(BROKER)["config_source"]
    assert (asked["task_reject_on_worker_lost"], asked["worker_prefetch_multiplier"]) == (True, 1)
