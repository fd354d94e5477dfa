"""The file beside a store that says which process has it open: left by one that died, damaged, or of another user."""

import json
import os
import socket
import subprocess
import threading

import pytest

from fhir_service.admin import running_service as doors
from fhir_service.admin.running_service import CommandError, Door, run_file
from tests.support.called import called


@pytest.fixture
def store(tmp_path):
    return tmp_path / "s.duckdb"


def free_pid():
    """The number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


@pytest.mark.alike
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"pid": "x", "url": "u", "door": "d"}',
        '{"pid": -1, "url": "u", "door": "d"}',
        "DEAD",
        "OTHER",
    ],
)
def test_a_run_file_without_a_process_is_ignored(store, text):
    """A dead process, damage, or a living process that does not listen there."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        text = text.replace("DEAD", json.dumps({"pid": free_pid(), "url": url, "door": "d"}))
        text = text.replace("OTHER", json.dumps({"pid": os.getpid(), "url": url, "door": "d"}))
        run_file(store).write_text(text)
        assert called("client", "add", "--store", store, "--name", "x").exit_code == 0
        assert called("client", "list", "--store", store).exit_code == 0


def test_a_run_file_is_removed_only_by_the_service_that_left_it(store):
    first = Door.open(store, "http://127.0.0.1:1", "first")
    second = Door.open(store, "http://127.0.0.1:2", "second")
    first.shut(store)
    assert Door.of(store) == second
    second.shut(store)
    assert Door.of(store) is None


def test_a_service_that_dies_during_a_command_leaves_it_unknown(store):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def hang_up():
            listening.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(CommandError, match="ended before it answered"):
            Door(os.getpid(), url, "d").ask("check", {})


def test_a_process_of_another_user_counts_as_running(monkeypatch):
    def refuse(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert doors.runs(1)
