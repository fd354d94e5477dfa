"""The whole read of `verify`: a service's tasks into the table that they are compared in, one page or several at once.

usage: verifying.py [--tasks 225000] [--rounds 3]
One process reads and one serves; both share two cores. The two ways alternate. Prints resources a second.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
import orjson

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.service import prepared, serving, task  # noqa: E402 - the project's own folder is not on a script's path
from pipelines.client.client import FhirClient  # noqa: E402
from pipelines.client.paging import AT_ONCE, every_page  # noqa: E402
from pipelines.client.replies import resources_of  # noqa: E402
from pipelines.client.tokens import Credentials  # noqa: E402
from pipelines.verifying.staging import Filling, workbench  # noqa: E402
from pipelines.verifying.target import THERE, there_of  # noqa: E402

A_BATCH = 1000


def fill(url: str, headers: dict[str, str], tasks: int) -> None:
    """Create so many tasks in batches."""
    for start in range(0, tasks, A_BATCH):
        entries = [
            {"resource": task(number), "request": {"method": "POST", "url": "Task"}}
            for number in range(start, min(start + A_BATCH, tasks))
        ]
        bundle = orjson.dumps({"resourceType": "Bundle", "type": "batch", "entry": entries})
        httpx.post(url, content=bundle, headers=headers, timeout=120).raise_for_status()


def read(client: FhirClient, folder: Path, at_once: int) -> float:
    """Read every task into a table; return how many that is a second."""
    began, found = time.perf_counter(), 0
    with workbench(folder) as db, Filling(db, "there", THERE) as there:
        for page in every_page(client, "Task", at_once=at_once):
            for body in resources_of(page, "Task"):
                there.add(there_of("Task", body))
                found += 1
    return found / (time.perf_counter() - began)


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
            rates: dict[int, list[float]] = {1: [], AT_ONCE: []}
            for _ in range(given.rounds):
                for at_once, found in rates.items():
                    found.append(read(client, folder, at_once))
            for at_once, found in rates.items():
                print(f"{at_once} at once: {statistics.median(found):,.0f} resources a second")
            client.close()


if __name__ == "__main__":
    main()
