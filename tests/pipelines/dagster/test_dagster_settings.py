"""The settings of Dagster that come with a home."""

import threading
from pathlib import Path
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster._grpc import server_watcher
from dagster._grpc.client import DagsterGrpcClient

from pipelines.dagster.attended import SECONDS_BETWEEN_LOOKS, look_less_often
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


def test_pages_and_daemon_ask_every_few_seconds_whether_the_definitions_are_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dagster's own is each second, which costs a good part of what is spent while nothing happens."""
    monkeypatch.setattr(server_watcher, "WATCH_INTERVAL", 1)
    look_less_often()
    waits, asked = list[float](), Mock(DagsterGrpcClient)

    class Ending(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            self.set()
            return True

    handlers = ("get_location_entry", "refresh_code_location", "on_disconnect", "on_reconnected", "on_updated")
    asked.get_server_id.return_value = "one"
    given = {name: Mock() for name in (*handlers, "on_error")}
    server_watcher.watch_grpc_server_thread("here", asked, Ending(), **given)
    assert waits == [SECONDS_BETWEEN_LOOKS]
