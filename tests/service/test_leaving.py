"""A process that ends at once: what it has to do at its end is done, and only its objects are not freed."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, logging, sys, threading, time
from fhir_service.leaving import leaving_at_once

class Object:
    def __del__(self):
        print("freed")

class Lines(logging.Handler):
    def close(self):
        print("the log is written")
        super().close()

kept, lines = Object(), Lines()
with leaving_at_once():
    atexit.register(print, "its functions have run")
    threading.Thread(target=lambda: (time.sleep(0.1), print("its threads have ended"))).start()
    sys.exit({code})
"""
DONE = "its threads have ended\nits functions have run\nthe log is written\n"


@pytest.mark.parametrize(
    ("code", "ends_with", "prints", "says"),
    [("3", 3, DONE, ""), ("None", 0, DONE, ""), ("'a reason'", 1, f"{DONE}freed\n", "a reason\n")],
)
def test_a_process_ends_at_once_after_all_that_it_has_to_do(code: str, ends_with: int, prints: str, says: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (ends_with, prints, says)
