"""Runs a Dagster process that ends with the one that started it: `attended web ...` or `attended daemon run ...`.

When standard input closes, however its other end ended, the process gets the signal that ends it in good order.
"""

import os
import signal
import sys
import threading
from contextlib import suppress


def main(arguments: list[str]) -> None:
    which, *rest = arguments
    threading.Thread(target=_watch, name="stdin", daemon=True).start()
    sys.argv = [f"dagster-{which}", *rest]
    if which == "web":
        from dagster_webserver.cli import main as command
    else:
        from dagster._daemon.cli import main as command
    command()  # type: ignore[no-untyped-call,unused-ignore]


def _watch() -> None:
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main(sys.argv[1:])
