"""Imports one file as `chartferry import` does, without publishing, and says what each stage took. For `bench/run.py`.

usage: import_one.py HOME FILE [--profile FOLDER]
The target is the service that runs over HOME. Prints one JSON document.
"""

import argparse
import cProfile
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipelines.pipeline import begin, end, load_run, validate_run
from pipelines.receive import receive
from pipelines.session import Session, open_session


def peak_bytes(used: resource.struct_rusage) -> int:
    """The most memory that a process had in use; macOS counts bytes, others kilobytes."""
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Stages:
    """Seconds and CPU seconds by stage."""

    def __init__(self, profiles: Path | None) -> None:
        self.took: dict[str, dict[str, float]] = {}
        self._profiles = profiles

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self._profiles:
                profile = stack.enter_context(cProfile.Profile())
                stack.callback(profile.dump_stats, self._profiles / f"{name}.prof")
            wall, cpu = time.perf_counter(), time.process_time()
            yield
            self.took[name] = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def import_one(session: Session, path: Path, stages: Stages) -> dict[str, Any]:
    """From a file to its closed batch. The questionnaires are read in validate, as in any import."""
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
    stages = Stages(given.profile)
    with open_session(given.home, os.environ) as session:
        result = import_one(session, given.file, stages)
    peak = peak_bytes(resource.getrusage(resource.RUSAGE_SELF))
    print(json.dumps({**result, "stages": stages.took, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
