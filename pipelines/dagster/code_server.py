"""Run the code server of `chartferry up`: the pages, the daemon and the runs of Dagster share its definitions.

It is Dagster's own command `dagster code-server start`, on a socket. Run as a program with a module and `HOST:PORT`, it
listens on a port, for pages and a daemon on other hosts. A child process holds the definitions. Each reload replaces
that child, while runs of the former one continue. Dagster's command does not notice if the child ends by itself;
`end_without_definitions` does.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from runpy import run_module
from types import FrameType
from typing import TYPE_CHECKING

import psutil

from pipelines.dagster.group import end_group
from pipelines.dagster.names import BY_LAUNCHER_TAG, DagsterNames, runs_of
from pipelines.home.sensor_ticks import last_ticks

if TYPE_CHECKING:
    import dagster as dg

SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_BETWEEN_TRIES = 0.5
LONGEST_SILENCE = 120.0
"""Seconds after which lost runs are given up without a daemon: it may be away, or its sensors may be off."""
LOG_LEVEL = "warning"
WATCHED = "CODE_SERVER_WATCHED"
"""Set in the environment of this program's children, which are restarted if they end."""
SEES_ENDS = "grpc-server-cleanup"
"""The name of Dagster's thread, in the process with the definitions, that notices the end of a run's process."""


def serve(module: str, address: str, seconds: float = SECONDS_BETWEEN_LOOKS) -> None:
    """Serve the definitions of a module until the process is interrupted, or the process with the definitions ends.

    address: the path of a socket, or `HOST:PORT`.
    """
    stop = threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupted)  # Dagster treats SIGTERM like SIGINT
    location = DagsterNames.of(os.environ).clinic or module
    lost, heard = lost_runs(location), heard_of_daemon(os.environ)
    for name, target, given in (
        ("definitions", end_without_definitions, (stop, end_with_runs, seconds)),
        ("lost runs", give_up_when, (heard, stop, lost)),
    ):
        threading.Thread(target=target, args=given, name=name, daemon=True).start()
    os.environ[WATCHED] = "yes"
    what = ("--module-name", module, "--location-name", location, "--log-level", LOG_LEVEL)
    sys.argv = ["dagster", "code-server", "start", *_where(address), *what]
    run_module("dagster", run_name="__main__")


def _where(address: str) -> tuple[str, ...]:
    """Return the options for an address."""
    host, _, port = address.rpartition(":")
    return ("--host", host, "--port", port) if host and port.isdecimal() else ("--socket", address)


def end_with_runs() -> None:
    """End this process at once, with its group: no run may outlive the code server."""
    end_group()
    os._exit(1)


def end_without_definitions(stop: threading.Event, end: Callable[[], None], seconds: float) -> None:
    """Wait until the newest child of this process has ended, then call `end`: the supervisor starts a new server.

    The newest child holds the definitions. Older children only finish their runs, and may end at any time. After a stop
    was requested, all children end in order, and nothing is called.
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


def end_when_blind() -> None:
    """End the process with the definitions if it can no longer notice the end of a run.

    An exception ends the thread that watches for ends, for example if a full disk prevents it from storing one. The run
    would count as running for ever, and block others.
    """
    if not os.environ.get(WATCHED):  # within another Dagster nothing restarts it
        return
    before = threading.excepthook

    def failed(what: threading.ExceptHookArgs) -> None:
        before(what)
        if what.thread and what.thread.name == SEES_ENDS:
            os._exit(1)

    threading.excepthook = failed


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def lost_runs(location: str) -> dict[str, float | None]:
    """Return the runs that ended with an earlier code server, each with its start in Unix seconds.

    These are the runs that are under way before this server starts. Only runs of this code location, such as one
    clinic's, and only runs of the default launcher are included.
    """
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        found = instance.get_run_records(dg.RunsFilter(statuses=_begun(), tags=runs_of(location)))
        return {each.dagster_run.run_id: each.start_time for each in found if BY_LAUNCHER_TAG in each.dagster_run.tags}


def _begun() -> "list[dg.DagsterRunStatus]":
    import dagster as dg

    return [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def give_up_when(
    heard: Callable[[], bool], stop: threading.Event, lost: Mapping[str, float | None], seconds: float = LONGEST_SILENCE
) -> None:
    """Give up lost runs once the daemon can start others on this code server, since it retries a run only once.

    seconds: the time after which they are given up in any case; else no other run of their feed could begin.
    """
    until = time.monotonic() + seconds
    while lost and not heard() and time.monotonic() < until:
        if stop.wait(SECONDS_BETWEEN_TRIES):
            return
    while not _gave_up(lost):
        if stop.wait(SECONDS_BETWEEN_LOOKS):
            return


def _gave_up(lost: Mapping[str, float | None]) -> bool:
    try:
        give_up(lost)
    except Exception as error:  # noqa: BLE001 - any error of the storage
        print(f"Lost runs cannot be given up yet ({type(error).__name__}).", file=sys.stderr, flush=True)
        return False
    return True


def give_up(lost: Mapping[str, float | None]) -> None:
    """Mark lost runs as failed or canceled, so that failed ones are retried.

    Otherwise they would count as running for ever, and block all later files of their feed and the load pool. A run
    that has started again meanwhile is not lost.
    """
    import dagster as dg

    if not lost:
        return
    with dg.DagsterInstance.get() as instance:
        for record in instance.get_run_records(dg.RunsFilter(run_ids=[*lost], statuses=_begun())):
            run = record.dagster_run
            if record.start_time == lost[run.run_id]:
                canceling = run.status == dg.DagsterRunStatus.CANCELING
                tell = instance.report_run_canceled if canceling else instance.report_run_failed
                tell(run, "Its process ended with the code server that had started it.")
                instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def heard_of_daemon(environ: Mapping[str, str]) -> Callable[[], bool]:
    """Return a function that is true once the daemon has reached this code server: when a sensor has ticked.

    The daemon tries to connect with pauses, even on this host. That the code server listens does not show a connection.
    """
    home = Path(environ.get("CHARTFERRY_HOME") or "var").resolve()
    before = last_ticks(home)
    return lambda: last_ticks(home) != before


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
