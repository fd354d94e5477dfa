"""How many creates and bundles a second services over one PostgreSQL store take, by processes and latency to the
database.

`python -m bench.processes --postgres FOLDER` prints the rates and writes bench/processes.json. FOLDER holds the socket
of a PostgreSQL server, in which the user may make databases. `--beside FOLDER` measures another version of the code,
such as a worktree of an earlier commit: the two take turns in each round.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg

from bench.proxy import proxied

ROOT = Path(__file__).parent.parent
WORLD = ROOT / "tests" / "spec" / "world"


@contextmanager
def database(folder: Path, port: int, user: str) -> Iterator[str]:
    """Make a database; yield its name. It is dropped when the block ends."""
    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(host=str(folder), port=port, user=user, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield name
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def services(code: Path, store: str, number: int, folder: Path) -> Iterator[list[str]]:
    """Start processes over a store, from the code in a folder. Yield their addresses."""
    environ = {**os.environ, "PYTHONPATH": str(code), "FHIR_SERVICE_STORE": store}
    command = [sys.executable, "-m", "fhir_service"]
    with ExitStack() as stack:
        urls, processes = [], []
        for n in range(number):
            (own := folder / f"{code.name}-{n}").mkdir(exist_ok=True)
            process = subprocess.Popen(
                [*command, "serve", "--port", "0"],
                env=environ | {"FHIR_SERVICE_AUDIT": str(own / "audit.ndjson")},
                cwd=code,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        for process in processes:
            assert process.stdout
            urls.append(process.stdout.readline().split()[-1])
        yield urls


def task() -> dict[str, Any]:
    return {
        "resourceType": "Task",
        "status": "requested",
        "intent": "unknown",
        "description": "a task of the benchmark",
        "for": {"reference": "Patient/p1"},
        "requester": {"reference": "Practitioner/dr1"},
        "identifier": [{"system": "urn:bench", "value": "1"}],
        "input": [{"type": {"text": "label"}, "valueString": "a label"}],
    }


ENTRY = {"resource": task(), "request": {"method": "POST", "url": "Task"}}
WORK = {
    # Path, body, resources in it, status, clients.
    "bundles of 500": ("/", {"resourceType": "Bundle", "type": "batch", "entry": [ENTRY] * 500}, 500, 200, 8),
    "single creates": ("/Task", task(), 1, 201, 32),
}


def rate(urls: list[str], headers: dict[str, str], work: str, seconds: float) -> tuple[float, float]:
    """Return the resources a second, and the percentage of all cores that was busy."""
    path, body, resources, status, clients = WORK[work]
    content, done, stop = json.dumps(body).encode(), itertools.count(), time.monotonic() + seconds

    def send(url: str) -> None:
        address = urlsplit(url)
        client = HTTPConnection(str(address.hostname), address.port, timeout=120)
        while time.monotonic() < stop:
            client.request("POST", path, content, headers)
            answer = client.getresponse()
            text = answer.read()
            assert answer.status == status, text[:200]
            next(done)
        client.close()

    psutil.cpu_percent()
    began = time.monotonic()
    threads = [threading.Thread(target=send, args=[urls[n % len(urls)]]) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(done) * resources / (time.monotonic() - began), psutil.cpu_percent()


def authorized(code: Path, store: str, url: str) -> dict[str, str]:
    """Return the headers of a new client."""
    command = [sys.executable, "-m", "fhir_service", "client", "add", "--store", store, "--name", "bench"]
    environ = {**os.environ, "PYTHONPATH": str(code)}
    said = subprocess.run(command, env=environ, cwd=code, check=True, stdout=subprocess.PIPE).stdout
    client = json.loads(said)
    form = {"grant_type": "client_credentials"} | {name: client[name] for name in ("client_id", "client_secret")}
    token = httpx.post(f"{url}/auth/token", data=form, timeout=60).json()["access_token"]
    return {"authorization": f"Bearer {token}", "content-type": "application/json"}


def measured(options: argparse.Namespace, code: Path, number: int, latency: float) -> dict[str, tuple[float, float]]:
    """Return the rates of one version of the code, with a number of processes, at a latency."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        socket = options.postgres / f".s.PGSQL.{options.port}"
        stack.enter_context(proxied(socket, folder, latency))
        name = stack.enter_context(database(options.postgres, options.port, options.user))
        store = f"postgresql+psycopg://{options.user}@/{name}?port={options.port}&host={folder}"
        load = [sys.executable, "-m", "fhir_service", "load", "--store", store, str(WORLD)]
        environ = {**os.environ, "PYTHONPATH": str(code)}
        subprocess.run(load, env=environ, cwd=code, check=True, stdout=subprocess.DEVNULL)
        urls = stack.enter_context(services(code, store, number, folder))
        headers = authorized(code, store, urls[0])
        for work in WORK:
            rate(urls, headers, work, 1)
        return {work: rate(urls, headers, work, options.seconds) for work in WORK}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", type=Path, required=True)
    parser.add_argument("--port", type=int, default=5432)
    parser.add_argument("--user", default="postgres")
    parser.add_argument("--beside", type=Path, help="the folder of another version of the code")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--latency", type=float, nargs="+", default=[0, 2], help="milliseconds to the database and back"
    )
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    versions = {"this": ROOT} | ({"beside": options.beside.absolute()} if options.beside else {})
    found: dict[str, list[tuple[float, float]]] = {}
    for _, latency, number in itertools.product(range(options.rounds), options.latency, options.processes):
        for version, code in versions.items():
            for work, figures in measured(options, code, number, latency / 1000).items():
                key = f"{work}, {number} processes, {latency:g} ms, {version}"
                found.setdefault(key, []).append(figures)
                print(f"{key}: {figures[0]:,.0f} a second, {figures[1]:.0f} % of the cores", flush=True)
    table = {
        key: {
            "a second": round(statistics.median(rate for rate, _ in figures)),
            "busy percent": round(statistics.median(busy for _, busy in figures)),
        }
        for key, figures in found.items()
    }
    (ROOT / "bench" / "processes.json").write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
