"""The service under load: durable single creates, reads, searches at several sizes, and bytes per stored task.

usage: service.py [--sizes 10000,100000,1000000] [--seconds 5] [--also FILE]
One process sends the requests over plain sockets, which takes little CPU; it shares two cores with the service.
Prints a table and writes `bench/service.json`.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import environment, keep_to  # noqa: E402 - the project's own folder is not on a script's path

CLIENTS = (1, 8, 32, 128)
PATIENTS = 1000
SEARCHES = {
    "all": "",
    "patient": "patient=Patient/b7",
    "status": "status=requested",
    "owner": "owner=Practitioner/d1",
    "label": "label=urgent",
    "description": "description=call 77",
    "due": "due=ge2026-06-01",
    "sort due-date": "_sort=due-date",
}
Row = dict[str, Any]


@contextmanager
def serving(store: Path, settings: dict[str, str] | None = None) -> Iterator[str]:
    """Run a service over a store, with settings as variables. Yield its address."""
    command = [sys.executable, "-m", "fhir_service", "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=HERE.parent,
        env=environment() | (settings or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as service:
        assert service.stdout is not None
        try:
            yield service.stdout.readline().split()[-1]
        finally:
            service.terminate()


def command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fhir_service", *map(str, arguments)],
        cwd=HERE.parent, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def prepared(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a store with patients and practitioners. Return it, and the headers of a client."""
    store, reference = folder / "service.duckdb", folder / "reference.ndjson"
    records = [{"resourceType": "Patient", "id": f"b{n}"} for n in range(PATIENTS)]
    records += [{"resourceType": "Practitioner", "id": f"d{n}"} for n in range(20)]
    reference.write_bytes(b"\n".join(map(orjson.dumps, records)))
    command("load", "--store", store, reference)
    client = json.loads(command("client", "add", "--store", store, "--name", "bench"))
    with serving(store) as url:
        form = {"grant_type": "client_credentials"} | {k: client[k] for k in ("client_id", "client_secret")}
        token = httpx.post(f"{url}/auth/token", data=form).json()["access_token"]
    return store, {"authorization": f"Bearer {token}", "content-type": "application/json"}


def task(number: int) -> Row:
    return {
        "resourceType": "Task",
        "identifier": [{"system": "urn:chartferry:default:Task", "value": f"k{number}"}],
        "status": "requested" if number % 3 else "completed",
        "intent": "unknown",
        "description": f"call {number % 1000} about the results",
        "for": {"reference": f"Patient/b{number % PATIENTS}"},
        "requester": {"reference": f"Practitioner/d{number % 20}"},
        "owner": {"reference": f"Practitioner/d{number % 7}"},
        "restriction": {"period": {"end": f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}"}},
        "input": [{"type": {"text": "label"}, "valueString": "urgent" if number % 50 == 0 else "routine"}],
    }


# --- The load: plain HTTP/1.1 over sockets --------------------------------------------------------


class Connection:
    """One kept-alive connection."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def open(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def send(self, method: str, path: str, body: bytes = b"") -> int:
        """Send a request; return the status of the answer. Its body is read and dropped."""
        head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)
        return int(answer[9:12])

    def close(self) -> None:
        self._writer.close()


async def hammer(
    url: str, headers: dict[str, str], clients: int, seconds: float, make: Callable[[int], tuple[str, str, bytes]]
) -> list[float]:
    """Return the seconds of each request. Each of `clients` sends one after another until the time is over."""
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    number = iter(range(10**12))

    async def client() -> None:
        connection = await Connection(url, headers).open()
        while time.perf_counter() < ends:
            method, path, body = make(next(number))
            began = time.perf_counter()
            status = await connection.send(method, path, body)
            taken.append(time.perf_counter() - began)
            if status not in (200, 201):
                sys.exit(f"{method} {path} answered {status}")

    await asyncio.gather(*(client() for _ in range(clients)))
    return taken


def figures(taken: list[float], seconds: float) -> Row:
    cuts = statistics.quantiles(taken, n=100) if len(taken) > 1 else taken * 99
    return {
        "per_second": round(len(taken) / seconds),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }


# --- Measuring -------------------------------------------------------------------------------------


def creates(url: str, headers: dict[str, str], seconds: float) -> Iterator[Row]:
    for turn, clients in enumerate(CLIENTS, 10):

        def make(n: int, base: int = turn * 10**8) -> tuple[str, str, bytes]:
            return "POST", "/Task", orjson.dumps(task(base + n))

        taken = asyncio.run(hammer(url, headers, clients, seconds, make))
        yield {"what": f"create, {clients} clients"} | figures(taken, seconds)


def searches(url: str, headers: dict[str, str], size: int, seconds: float, an_id: str) -> Iterator[Row]:
    deep = size * 2 // 5
    paths = {"read by id": f"/Task/{an_id}"}
    paths |= {f"first page, {name}": f"/Task?{query.replace(' ', '%20')}" for name, query in SEARCHES.items()}
    paths |= {f"page at {deep:,}": f"/Task?_offset={deep}"}
    for what, path in paths.items():

        def make(_: int, path: str = path) -> tuple[str, str, bytes]:
            return "GET", path, b""

        taken = asyncio.run(hammer(url, headers, 1, seconds, make))
        yield {"what": f"{what}, {size:,} tasks"} | figures(taken, seconds)


def fill(url: str, headers: dict[str, str], start: int, end: int) -> str:
    """Store tasks by bundles. Return the id of the last one."""
    location = ""
    with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
        for first in range(start, end, 500):
            entries = [
                {"resource": task(n), "request": {"method": "POST", "url": "Task"}}
                for n in range(first, min(first + 500, end))
            ]
            bundle = {"resourceType": "Bundle", "type": "batch", "entry": entries}
            answer = client.post("/", content=orjson.dumps(bundle)).raise_for_status().json()
            location = answer["entry"][-1]["response"]["location"]
    return location.rpartition("/")[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--also", type=Path)
    options = parser.parse_args()
    cores = keep_to(2)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        store, headers = prepared(Path(temporary))
        with serving(store) as url:
            rows.extend(map(show, creates(url, headers, options.seconds)))
        store.unlink()
        store, headers = prepared(Path(temporary))
        done = 0
        for size in map(int, options.sizes.split(",")):
            with serving(store) as url:
                an_id = fill(url, headers, done, size)
                rows.extend(map(show, searches(url, headers, size, min(options.seconds, 3), an_id)))
            done = size
            rows.append(show({"what": f"bytes per task, {size:,} tasks", "bytes": store.stat().st_size // size}))
    result = {"cores": cores, "rows": rows}
    for path in filter(None, (HERE / "service.json", options.also)):
        path.write_text(json.dumps(result, indent=1) + "\n")


def show(row: Row) -> Row:
    print(
        f"{row['what']:<45}" + "  ".join(f"{name} {value:,}" for name, value in row.items() if name != "what"),
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
