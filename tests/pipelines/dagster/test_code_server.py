"""The process that holds the definitions ends where it would not see any more that runs end."""

import os
import subprocess
import sys

import pytest

from pipelines.dagster.code_server import WATCHED

PROGRAM = """
import sys, threading, time
from pipelines.dagster.code_server import end_when_blind

end_when_blind()
failing = threading.Thread(target=lambda: 1 / 0, name=sys.argv[1])
failing.start()
failing.join()
time.sleep(0.1)
print("goes on")
"""


@pytest.mark.parametrize(
    ("name", "watched", "end"),
    [
        ("grpc-server-cleanup", "yes", (1, "")),
        ("another", "yes", (0, "goes on\n")),
        ("grpc-server-cleanup", "", (0, "goes on\n")),
    ],
)
def test_the_code_server_ends_if_the_thread_that_watches_its_runs_ends(
    name: str, watched: str, end: tuple[int, str]
) -> None:
    command, environ = [sys.executable, "-c", PROGRAM, name], os.environ | {WATCHED: watched}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert (done.returncode, done.stdout) == end
    assert "ZeroDivisionError" in done.stderr
