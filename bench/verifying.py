"""The full read of `verify`: all tasks of a service into the table for the comparison, one page or several at once.

usage: verifying.py [--tasks 225000] [--rounds 3]
One process reads and one serves; both share two cores. The two ways alternate. Prints resources a second, and the CPU
seconds of both processes: on a shared machine only these can be compared.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx
import orjson
import psutil

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.service import prepared, serving, task  # noqa: E402 - the project's own folder is not on a script's path
from pipelines.client.client import FhirClient  # noqa: E402
from pipelines.client.replies import resources_of  # noqa: E402
from pipelines.client.tokens import Credentials  # noqa: E402
from pipelines.client.whole import AT_ONCE, LARGE  # noqa: E402
from pipelines.verifying.staging import StagingTable, workbench  # noqa: E402
from pipelines.verifying.target import THERE, there_of  # noqa: E402

A_BATCH = 1000


def fill(url: str, headers: dict[str, str], tasks: int) -> None:
    """Create a number of tasks by batches."""
    for start in range(0, tasks, A_BATCH):
        entries = [
            {"resource": task(number), "request": {"method": "POST", "url": "Task"}}
            for number in range(start, min(start + A_BATCH, tasks))
        ]
        bundle = orjson.dumps({"resourceType": "Bundle", "type": "batch", "entry": entries})
        httpx.post(url, content=bundle, headers=headers, timeout=120).raise_for_status()


class Reading(NamedTuple):
    """The resources a second, and the CPU seconds of the reader and of the service."""

    rate: float
    reader: float
    service: float


def read(client: FhirClient, folder: Path, at_once: int) -> Reading:
    """Read every task into a table."""
    began, found, own, served = time.perf_counter(), 0, time.process_time(), of_service()
    with workbench(folder) as db, StagingTable(db, "there", THERE) as there:
        for page in client.pages("Task", wishes=LARGE, at_once=at_once):
            for body in resources_of(page, "Task"):
                there.add(there_of("Task", body))
                found += 1
    seconds = time.perf_counter() - began
    return Reading(found / seconds, time.process_time() - own, of_service() - served)


def of_service() -> float:
    """Return the CPU seconds of the processes that this one has started."""
    return sum(sum(each.cpu_times()[:2]) for each in psutil.Process().children(recursive=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=225_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, headers = prepared(folder)
        with serving(store) as url:
            fill(url, headers, given.tasks)
            client = FhirClient(url, Credentials(token=headers["authorization"].split()[1]))
            readings: dict[int, list[Reading]] = {1: [], AT_ONCE: []}
            for _ in range(given.rounds):
                for at_once, found in readings.items():
                    found.append(read(client, folder, at_once))
            for at_once, found in readings.items():
                rate, reader, service = map(statistics.median, zip(*found, strict=True))
                used = f"{reader:.1f} CPU seconds of the reader, {service:.1f} of the service"
                print(f"{at_once} at once: {rate:,.0f} resources a second; {used}")
            client.close()


if __name__ == "__main__":
    main()
