"""The code server ends, to be started anew, once its definitions are gone or it sees no end of a run any more."""

import subprocess
import sys

import pytest

PROGRAM = """
import subprocess, sys, threading
from pipelines.dagster.code_server import end_without_definitions

holder = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
holder.stdout.readline()  # its run has ended
threading.Timer(2, holder.kill).start()
end_without_definitions(threading.Event(), lambda: print("ends", flush=True), 0.01)
holder.kill()
"""
HOLDER = "import subprocess, time; run = {}; print('up', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("subprocess.Popen(['true'])", "does not see that a run ended"),
        ("subprocess.run(['true'])", "ended"),  # killed after two seconds
    ],
)
def test_it_ends_once_its_definitions_are_gone_or_do_not_see_that_a_run_ended(run: str, why: str) -> None:
    command = [sys.executable, "-c", PROGRAM, HOLDER.format(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("ends\n", f"The process that holds the definitions {why}.\n")
