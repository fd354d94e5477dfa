"""The settings of Dagster that come with a home."""

from pathlib import Path

import dagster as dg
import pytest

from pipelines.home.dagster_folder import prepare_dagster_home


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
            assert queue.max_user_code_failure_retries > 1000
            assert instance.run_retries_enabled
            assert instance.run_monitoring_enabled
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_dagster_home(tmp_path)
    assert (folder / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
    assert folder.stat().st_mode & 0o777 == 0o700
