"""`chartferry` and workers of its loads. The first process that comes to a point of a step halts there.

usage: python -m tests.support.halting PLACE STEP TURN ARGUMENT...
The process makes the file PLACE, and goes on when the file is removed. Meanwhile a test kills or disconnects its host.
TURN chooses the point of the step. With the STEP `none` no process halts. A worker gets parts of few rows.

Variables: SILENCE_SECONDS, the silence after which a loader counts as dead.
"""

import os
import pkgutil
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.cli import run
from pipelines.importing import begin_and_end
from pipelines.ledger import lease
from pipelines.runs import parts, worker, workers

ROWS_A_WORKER = 500
PUBLISHING = ("publish", "none")
"""Steps whose imports publish. Publishing many rows takes long, so that not all machines do it."""
WORKER = "worker"
"""Given in place of the arguments: run a worker, which reads its order from standard input."""


class Point(NamedTuple):
    """A point where a process can halt: before or after a call of a function, named as `module:name`."""

    function: str
    after: bool = True


POINTS = {
    "receive": (
        Point("pipelines.receiving.stage:_copy"),
        Point("pipelines.receiving.objects:receive"),
    ),
    "validate": (
        Point("pipelines.runs.validating:validate_received", after=False),
        Point("pipelines.runs.validating:validate_received"),
        Point("pipelines.runs.batch:validate_run"),
    ),
    "load": (
        Point("pipelines.ledger.ledger:Ledger.intend"),
        Point("pipelines.client.client:FhirClient.create_all"),
        Point("pipelines.ledger.ledger:Ledger.settle"),
        Point("pipelines.runs.batch:load_run"),
    ),
    "publish": (
        Point("pipelines.importing.begin_and_end:publish_reports", after=False),
        Point("pipelines.importing.begin_and_end:publish_reports"),
        Point("pipelines.reports.copying:_make_latest", after=False),
        Point("pipelines.reports.copying:_make_latest"),
    ),
}
STEPS = tuple(POINTS)


def halt_at(point: Point, place: Path, calls: int) -> None:
    """Halt the first process at its n-th call of a function."""
    owner_of, _, name = point.function.rpartition("." if "." in point.function.partition(":")[2] else ":")
    owner = pkgutil.resolve_name(owner_of)
    function: Callable[..., Any] = getattr(owner, name)
    called = 0

    def halting(*arguments: Any, **options: Any) -> Any:
        nonlocal called
        called += 1
        if called != calls:
            return function(*arguments, **options)
        done = function(*arguments, **options) if point.after else None
        halt(place)
        return done if point.after else function(*arguments, **options)

    setattr(owner, name, halting)


def halt(place: Path) -> None:
    """Make a file and wait until it is removed. Return at once if another process has made it."""
    halted = place.with_name(f"{place.name}-once")
    try:
        os.close(os.open(halted, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    place.touch()
    while place.exists():
        time.sleep(0.05)


def main() -> int:
    place, step, turn, *arguments = sys.argv[1:]
    silence = float(os.environ.get("SILENCE_SECONDS") or lease.SILENCE_SECONDS)
    lease.SILENCE, lease.SILENCE_SECONDS = timedelta(seconds=silence), silence
    (lease.Lease.__init__.__kwdefaults__ or {})["beat_seconds"] = silence / 6
    parts.ROWS_A_WORKER = ROWS_A_WORKER
    if points := POINTS.get(step):
        more, at = divmod(int(turn), len(points))
        halt_at(points[at], Path(place), 1 + more if step == "load" and at < len(points) - 1 else 1)
    if arguments == [WORKER]:
        return worker.main()
    if step not in PUBLISHING:
        begin_and_end.publish_into = lambda *_, **__: None
    workers.PROGRAM = (sys.executable, "-m", "tests.support.halting", place, step, turn, WORKER)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
