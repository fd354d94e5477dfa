"""Runs a Dagster process that ends with the one that started it: `attended web HOST PORT MODULE` or `attended daemon
run ...`.

When standard input closes, however its other end ended, the process gets the signal that ends it in good order, and
what it had started, such as the processes of runs, ends with it.
Dagster's storage is made by one process at a time. A daemon first gives up the runs that an earlier one began and that
ended with it, so that they are made again.
"""

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ENDS_WITHIN_SECONDS = 30.0


def main(arguments: list[str]) -> None:
    which, *rest = arguments
    make_storage(Path(os.environ["DAGSTER_HOME"]))
    if which == "web":
        from pipelines.dagster.web import serve

        host, port, module = rest
        serve(module, host, int(port))
    else:
        from dagster._daemon.cli import main as command

        sys.argv = [f"dagster-{which}", *rest]
        give_up_lost_runs()
        command()  # type: ignore[no-untyped-call,unused-ignore]


@contextmanager
def attended() -> Iterator[None]:
    """Within it the process lives as long as standard input; its group, which it leads, does not outlive it then."""
    closed = threading.Event()
    threading.Thread(target=_watch, args=(closed,), name="stdin", daemon=True).start()
    try:
        yield
    finally:
        if closed.is_set():
            _end_group()


def make_storage(folder: Path) -> None:
    """Make Dagster's databases where they are missing. Two processes that make the same table at once both fail."""
    import dagster as dg

    with (folder / ".storage.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with dg.DagsterInstance.get() as instance:
            instance.get_runs(limit=1)
            instance.all_instigator_state()
            instance.get_asset_keys(limit=1)


def give_up_lost_runs() -> None:
    """Fails what an ended daemon had under way; its retries see to the rest. Runs of other launchers are left alone.

    Without it they would stay under way for ever, and hold up every later file of their feed and of the load's pool.
    """
    import dagster as dg
    from dagster._core.storage.tags import GRPC_INFO_TAG

    status = dg.DagsterRunStatus
    began = dg.RunsFilter(statuses=[status.STARTING, status.STARTED, status.CANCELING])
    with dg.DagsterInstance.get() as instance:
        for run in instance.get_runs(began):
            if GRPC_INFO_TAG in run.tags:
                tell = instance.report_run_canceled if run.status == status.CANCELING else instance.report_run_failed
                tell(run, "Its process ended with the daemon that had started it.")
                instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _watch(closed: threading.Event) -> None:
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    closed.set()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(ENDS_WITHIN_SECONDS)
    _end_group()


def _end_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    with attended():
        main(sys.argv[1:])
