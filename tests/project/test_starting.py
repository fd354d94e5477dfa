"""Commands that tests fork from the warm process are like those that are truly started."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.commands import command, environment
from tests.support.starting import CAN_FORK, Forked, OwnService, finish, start

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="commands are forked on Linux alone")


@pytest.mark.parametrize(
    "arguments",
    [("fhir-service", "--help"), ("fhir-service", "nothing"), ("chartferry", "--home", "none", "purge", "a-1")],
    ids=" ".join,
)
def test_a_command_prints_and_ends_as_a_true_one_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    asked, environ = command(*arguments), environment()
    with start(asked, env=environ, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert isinstance(process, Forked)
        process.communicate(timeout=60)
    forked = finish(asked, env=environ, cwd=tmp_path, timeout=60)
    true = subprocess.run(
        asked, env=environ, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (true.returncode, true.stdout, true.stderr)


def test_a_command_has_the_folder_the_variables_and_the_umask_of_its_own(tmp_path: Path) -> None:
    environ = environment(FHIR_SERVICE_STORE="own.duckdb")
    before = os.umask(0o027)
    try:
        done = finish(command("fhir-service", "client", "add", "--name", "one"), env=environ, cwd=tmp_path, timeout=60)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / "own.duckdb").stat().st_mode) == 0o600


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_a_service_is_ended_by_signals(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    asked = command("fhir-service", "serve", "--store", tmp_path / "s.duckdb", "--port", 0)
    with start(asked, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("listening on")
        assert process.poll() is None
        process.send_signal(sent)
        assert process.wait(60) == code
        assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize("killed", [True, False])
def test_a_service_that_a_command_starts_ends_as_a_child_of_it_would(tmp_path: Path, killed: bool) -> None:
    """By its input, or with the program that stands for it."""
    asked = [*OwnService(), "serve", "--store", str(tmp_path / "s.duckdb"), "--port", "0", "--until-stdin-closes"]
    pipe = subprocess.PIPE
    with subprocess.Popen(asked, env=environment(), stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline().startswith("listening on")
        number = json.loads((tmp_path / "s.duckdb.run").read_text())["pid"]
        assert number != child.pid
        if killed:
            child.kill()
        else:
            child.stdin.close()
        assert child.wait(60) == (-9 if killed else 0)
    ends = time.monotonic() + 60
    while psutil.pid_exists(number) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not psutil.pid_exists(number)


def test_a_variable_that_python_reads_at_its_start_prevents_a_fork_from_the_warm_process() -> None:
    with start([sys.executable, "-m", "fhir_service", "--help"], env=environment(PYTHONHASHSEED="1")) as process:
        assert isinstance(process, subprocess.Popen)
