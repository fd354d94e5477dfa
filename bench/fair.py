"""How long reads by id and single creates wait while the service handles large requests of another client.

usage: fair.py [--tasks 100000] [--seconds 10] [--only bundles,transactions,load,search,sweep] [--also FILE]
One client sends large requests without a pause. A second one reads a task every 10 ms, a third one creates a task every
25 ms; a request that is late is sent at once. Prints a table of the waits and their limits, and writes
`bench/fair.json`. Exit code 1 if a wait exceeds its limit.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import orjson

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import environment, keep_to  # noqa: E402 - the project's own folder is not on a script's path
from bench.service import PATIENTS, Connection, Row, figures, fill, prepared, serving, show, task  # noqa: E402

READ_EVERY, CREATE_EVERY = 0.01, 0.025
READ_MS, CREATE_MS, BESIDE_TRANSACTION_MS = 100, 300, 1_000
ENTRIES = 5_000
RECORDS = 100_000
VALUES = 500
numbers = count(10**9)


class Asked(NamedTuple):
    """A service: its address, the headers of requests to it, its store, and a folder for files."""

    url: str
    headers: dict[str, str]
    store: Path
    folder: Path


Work = Callable[[Asked], Awaitable[None]]


async def _bundle(asked: Asked, kind: str) -> None:
    entries = [{"resource": task(next(numbers)), "request": {"method": "POST", "url": "Task"}} for _ in range(ENTRIES)]
    body = orjson.dumps({"resourceType": "Bundle", "type": kind, "entry": entries})
    await _right(asked, "POST", "/", body)


async def _right(asked: Asked, method: str, path: str, body: bytes = b"") -> None:
    connection = await Connection(asked.url, asked.headers).open()
    status = await connection.send(method, path, body)
    connection.close()
    if status != 200:
        sys.exit(f"{method} {path[:60]} answered {status}")


async def bundles(asked: Asked) -> None:
    await _bundle(asked, "batch")


async def transactions(asked: Asked) -> None:
    await _bundle(asked, "transaction")


async def load(asked: Asked) -> None:
    """Load new patients through the running service, from a new file each time."""
    first = next(numbers) * RECORDS
    records = ({"resourceType": "Patient", "id": f"l{first + n}"} for n in range(RECORDS))
    path = asked.folder / "more.ndjson"
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    command = (sys.executable, "-m", "fhir_service", "load", "--store", str(asked.store), str(path))
    quiet = asyncio.subprocess.DEVNULL
    loading = await asyncio.create_subprocess_exec(*command, cwd=HERE.parent, env=environment(), stdout=quiet)
    try:
        if await loading.wait():
            sys.exit("the load failed")
    finally:
        with suppress(ProcessLookupError):
            loading.terminate()


async def search(asked: Asked) -> None:
    """Search for many values at once. The first value differs each time, so that no answer is in the cache."""
    first = next(numbers)
    some = ",".join(f"Patient/b{(first + n) % PATIENTS}" for n in range(VALUES))
    await _right(asked, "GET", f"/Task?patient={quote(some)}&_offset={first % 5_000}&_sort=due-date")


async def sweep(asked: Asked) -> None:
    """Read all resources of a type, in pages of the largest size."""
    async with httpx.AsyncClient(base_url=asked.url, headers=asked.headers, timeout=60) as client:
        url: str | None = "/Task?_count=1000"
        while url:
            found = (await client.get(url)).raise_for_status().json()
            url = next((link["url"] for link in found["link"] if link["relation"] == "next"), None)


WORKS: dict[str, tuple[Work, int]] = {
    "bundles": (bundles, CREATE_MS),
    "transactions": (transactions, BESIDE_TRANSACTION_MS),
    "load": (load, CREATE_MS),
    "search": (search, CREATE_MS),
    "sweep": (sweep, CREATE_MS),
}
"""The large requests by name, each with the seconds that a single create may wait meanwhile."""


async def paced(asked: Asked, every: float, seconds: float, make: Callable[[], tuple[str, str, bytes]]) -> list[float]:
    """Return the seconds of each request of a client that sends one per interval, after the answer to the last."""
    connection = await Connection(asked.url, asked.headers).open()
    taken: list[float] = []
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        await asyncio.sleep(max(0.0, began + every * len(taken) - now))
        at = time.perf_counter()
        status = await connection.send(*make())
        taken.append(time.perf_counter() - at)
        if status not in (200, 201):
            sys.exit(f"a request answered {status}")
    return taken


async def beside(asked: Asked, work: Work, ids: list[str], seconds: float) -> tuple[list[float], list[float]]:
    """Return the seconds of reads and of creates while a large request is repeated."""
    ring = iter(ids * 1_000)

    async def again_and_again() -> None:
        while True:
            await work(asked)

    working = asyncio.create_task(again_and_again())
    await asyncio.sleep(0.5)
    reading = paced(asked, READ_EVERY, seconds, lambda: ("GET", f"/Task/{next(ring)}", b""))
    creating = paced(asked, CREATE_EVERY, seconds, lambda: ("POST", "/Task", orjson.dumps(task(next(numbers)))))
    gathered = asyncio.gather(reading, creating)
    both: list[asyncio.Future[Any]] = [working, gathered]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    return await gathered


def ids_of(asked: Asked, number: int = 5_000) -> list[str]:
    """Return the ids of the oldest tasks: few of them are in the cache."""
    with httpx.Client(base_url=asked.url, headers=asked.headers, timeout=60) as client:
        pages = [client.get(f"/Task?_count=1000&_offset={start}").json() for start in range(0, number, 1000)]
    return [found["resource"]["id"] for page in pages for found in page.get("entry", ())]


def measured(asked: Asked, names: list[str], seconds: float) -> Iterator[Row]:
    ids = ids_of(asked)
    for name in names:
        work, create_ms = WORKS[name]
        reads, creates = asyncio.run(beside(asked, work, ids, seconds))
        for what, taken, most in (("read", reads, READ_MS), ("create", creates, create_ms)):
            yield {"what": f"{what}, beside {name}"} | figures(taken, seconds) | {
                "max_ms": round(max(taken) * 1000, 1),
                "may_be_ms": most,
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", default=",".join(WORKS))
    parser.add_argument("--also", type=Path)
    options = parser.parse_args()
    cores = keep_to(2)
    with tempfile.TemporaryDirectory() as temporary:
        store, headers = prepared(Path(temporary))
        with serving(store) as url:
            fill(url, headers, 0, options.tasks)
            asked = Asked(url, headers, store, Path(temporary))
            rows = [show(row) for row in measured(asked, options.only.split(","), options.seconds)]
    for path in filter(None, (HERE / "fair.json", options.also)):
        path.write_text(json.dumps({"cores": cores, "tasks": options.tasks, "rows": rows}, indent=1) + "\n")
    if beyond := [row["what"] for row in rows if row["p99_ms"] > row["may_be_ms"]]:
        sys.exit(f"too long: {'; '.join(beyond)}")


if __name__ == "__main__":
    main()
