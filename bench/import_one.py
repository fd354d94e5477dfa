"""Import one file like `chartferry import`, without publishing, and print what each stage took. For `bench/run.py`.

usage: import_one.py HOME FILE [--profile FOLDER]
The target is the service that runs over HOME, or the one that the environment names. Prints one JSON document.
"""

import argparse
import cProfile
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from pipelines.home.progress import Progress
from pipelines.receiving.stage import receive
from pipelines.runs.beginning import begin
from pipelines.runs.ending import end
from pipelines.runs.loading import load_run
from pipelines.runs.validating import validate_run
from pipelines.session.opening import open_session
from pipelines.session.session import Session


class Memory(threading.Thread):
    """Sample the memory of this process and its helpers. Shared pages, such as those of libraries, count once."""

    EVERY = 0.25

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seen = 0

    def run(self) -> None:
        this = psutil.Process()
        while True:
            with suppress(psutil.NoSuchProcess):
                helpers = sum(one.memory_full_info().uss for one in this.children())
                self._seen = max(self._seen, this.memory_info().rss + helpers)
            time.sleep(self.EVERY)

    def peak_bytes(self) -> int:
        """Return the largest sample in bytes, or the peak of this process."""
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return max(self._seen, own)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its helpers that have ended."""
    times = os.times()
    return sum(times[:4])


class Moments(Progress):
    """The progress of the load as `(seconds, rows so far)`, sampled rarely enough to need little memory."""

    APART = 0.05

    def __init__(self) -> None:
        self.load: list[tuple[float, int]] = []
        self._loading, self._rows = False, 0

    def stage(self, name: str, *_: object) -> None:
        self._loading = name == "load"
        if self._loading:
            self.load.append((time.perf_counter(), 0))

    def advance(self, rows: int) -> None:
        self._rows += rows if self._loading else 0
        if self._loading and time.perf_counter() >= self.load[-1][0] + self.APART:
            self.load.append((time.perf_counter(), self._rows))

    def end(self, *_: object) -> None:
        if self._loading:
            self.load.append((time.perf_counter(), self._rows))

    def tenths(self) -> list[float]:
        """Return the rows a second of each tenth of the rows; an empty list for few rows."""
        rows = self.load[-1][1] if self.load else 0
        if rows < 50_000:
            return []
        at = [next(moment for moment in self.load if moment[1] >= rows * part / 10) for part in range(11)]
        return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(at)]


class Stages:
    """The seconds and CPU seconds of each stage."""

    def __init__(self, profiles: Path | None) -> None:
        self.took: dict[str, dict[str, float]] = {}
        self._profiles = profiles

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self._profiles:
                profile = stack.enter_context(cProfile.Profile())
                stack.callback(profile.dump_stats, self._profiles / f"{name}.prof")
            wall, cpu = time.perf_counter(), cpu_seconds()
            yield
            self.took[name] = {"seconds": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def import_one(session: Session, path: Path, stages: Stages) -> dict[str, Any]:
    """Import a file as `chartferry import` does, without publishing. Return the state and counts of its batch."""
    feed = session.catalog.match(path.name)
    assert feed is not None
    with stages.stage("receive"):
        received = receive(path, feed, session.home)
    with stages.stage("validate"):
        run = begin(session, received, feed)
        validated = validate_run(session, run)
    with stages.stage("load"):
        result = end(session, run, validated, load_run(session, run, validated))
    return {"state": result.state, "counts": result.counts}


def main() -> None:
    parser = argparse.ArgumentParser(description="Imports one file and says what each stage took.")
    parser.add_argument("home", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="Write a profile of each stage there.")
    given = parser.parse_args()
    stages, moments, memory = Stages(given.profile), Moments(), Memory()
    memory.start()
    with open_session(given.home, os.environ, progress=moments) as session:
        result = import_one(session, given.file, stages)
    tenths = moments.tenths()
    decay = tenths[-1] / tenths[0] if tenths else None
    used = {"peak_bytes": memory.peak_bytes(), "tenths": tenths, "decay": decay}
    print(json.dumps({**result, "stages": stages.took, **used}))


if __name__ == "__main__":
    main()
