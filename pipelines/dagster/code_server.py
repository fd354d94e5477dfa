"""Runs the code server of `chartferry up`: the pages, the daemon and the runs of Dagster share its definitions.

It is Dagster's own command `dagster code-server start`, on a socket. A second process of that command holds the
definitions. At each reload a new one takes its place, while runs of the one before go on. The command does not notice
when that process ends by itself; `end_without_definitions` does.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from runpy import run_module
from types import FrameType

import psutil

from pipelines.dagster.group import end_group
from pipelines.dagster.names import Names

SECONDS_BETWEEN_LOOKS = 5.0
LOG_LEVEL = "warning"


def serve(module: str, socket: str, seconds: float = SECONDS_BETWEEN_LOOKS) -> None:
    """Serve the definitions of a module until the process is interrupted, or what holds them has ended."""
    stop = threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupted)  # Dagster does with SIGTERM what is done with SIGINT
    names = Names.of(os.environ)
    give_up_lost_runs(names)
    threading.Thread(
        target=end_without_definitions, args=(stop, end_with_runs, seconds), name="definitions", daemon=True
    ).start()
    where = ("--socket", socket, "--module-name", module, "--location-name", names.clinic or module)
    sys.argv = ["dagster", "code-server", "start", *where, "--log-level", LOG_LEVEL]
    run_module("dagster", run_name="__main__")


def end_with_runs() -> None:
    """End this process at once, with its group: no run may outlive the code server."""
    end_group()
    os._exit(1)


def end_without_definitions(stop: threading.Event, end: Callable[[], None], seconds: float) -> None:
    """Wait until the newest child of this process has ended, then call `end`, so that the supervisor starts it anew.

    The newest child holds the definitions. Older ones only finish their runs, and may end at any time. Once a stop was
    asked for, all children end in order, and it is left to that.
    """
    own, known, holder = psutil.Process(), set[psutil.Process](), None
    while holder is None or _lives(holder):
        if stop.wait(seconds):
            return
        children = own.children()
        if new := [child for child in children if child not in known]:
            holder = max(new, key=lambda child: (child.create_time(), child.pid))
        known = set(children)
    if not stop.is_set():
        print("The process that holds the definitions ended.", file=sys.stderr, flush=True)
        end()


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def give_up_lost_runs(names: Names) -> None:
    """Mark the runs that ended with an earlier code server as failed or canceled, so that failed ones are retried.

    Otherwise they would count as running for ever, and block all later files of their feed and the load pool.
    Only runs that the default launcher started are marked, and none of another clinic.
    """
    import dagster as dg
    from dagster._core.storage.tags import GRPC_INFO_TAG

    status = dg.DagsterRunStatus
    began = dg.RunsFilter(statuses=[status.STARTING, status.STARTED, status.CANCELING], tags=names.own_runs)
    with dg.DagsterInstance.get() as instance:
        for run in instance.get_runs(began):
            if GRPC_INFO_TAG in run.tags:
                tell = instance.report_run_canceled if run.status == status.CANCELING else instance.report_run_failed
                tell(run, "Its process ended with the code server that had started it.")
                instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
