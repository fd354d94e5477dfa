"""Run a Dagster process that ends with its parent.

Its arguments are `code MODULE SOCKET`, `web HOST PORT FILE`, or `daemon` with the daemon's own.
Standard input is a pipe from the parent, which closes even if the parent is killed. The process then shuts down in
order, and the processes that it started, such as runs, end with it. Only one process at a time creates Dagster's
storage.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path

from pipelines.dagster.group import end_group
from pipelines.home.files import locked

ENDS_WITHIN_SECONDS = 30.0


def main(arguments: list[str]) -> None:
    which, *rest = arguments
    make_storage(Path(os.environ["DAGSTER_HOME"]))
    if which == "code":
        from pipelines.dagster.code_server import serve

        module, socket = rest
        serve(module, socket)
        return
    if which == "web":
        from pipelines.dagster.web import serve_pages

        host, port, workspace = rest
        serve_pages(workspace, host, int(port))
    else:
        [command] = entry_points(group="console_scripts", name=f"dagster-{which}")
        sys.argv = [command.name, *rest]
        command.load()()


@contextmanager
def attended() -> Iterator[None]:
    """End the process when standard input closes, and kill its process group if it leads one."""
    closed = threading.Event()
    threading.Thread(target=_watch, args=(closed,), name="stdin", daemon=True).start()
    try:
        yield
    finally:
        if closed.is_set():
            end_group()


def make_storage(folder: Path) -> None:
    """Create Dagster's databases under a lock: two processes that create one table at the same time both fail."""
    import dagster as dg

    with locked(folder / ".storage.lock"), dg.DagsterInstance.get() as instance:
        instance.get_runs(limit=1)
        instance.all_instigator_state()
        instance.get_asset_keys(limit=1)


def _watch(closed: threading.Event) -> None:
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    closed.set()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(ENDS_WITHIN_SECONDS)
    end_group()


if __name__ == "__main__":
    with attended():
        main(sys.argv[1:])
