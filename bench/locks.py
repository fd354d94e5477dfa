"""How long a batch keeps rows locked in PostgreSQL, by latency between service and database.

`python -m bench.locks --postgres FOLDER` prints it for bundles of 500 tasks and of 500 payments. FOLDER holds the
socket of a PostgreSQL server, in which the user may make databases. A batch writes and commits in one exchange: its
rows are locked from the first byte of that, as it reaches the server, to the server's answer to COMMIT. From its first
exchange on it also keeps away loads of reference data, and nobody else.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.processes import ROOT, authorized, database, services
from bench.proxy import proxied
from tests.support.payers import practice

ENTRIES = 500
WITHIN, ENDED = b"Z\0\0\0\5T", b"Z\0\0\0\5I"
"""The server's message at the end of an exchange: within a transaction, and after one."""


class Held:
    """Seconds for which transactions of at least two exchanges were open, and for which their last exchange took."""

    def __init__(self) -> None:
        self.locked: list[float] = []
        self.open: list[float] = []
        self._begun: dict[int, list[float]] = {}
        self._waits: set[int] = set()

    def watch(self, connection: int, to_server: bool, data: bytes) -> None:
        """Note bytes that reach the server, or come from it."""
        now = time.monotonic()
        if to_server:
            if connection not in self._waits:
                self._begun.setdefault(connection, []).append(now)
                self._waits.add(connection)
            return
        if data.endswith((WITHIN, ENDED)):
            self._waits.discard(connection)
            if data.endswith(ENDED) and len(begun := self._begun.pop(connection, [])) > 1:
                self.locked.append(now - begun[-1])
                self.open.append(now - begun[0])


def bundle(kind: str, patients: Sequence[str]) -> bytes:
    return json.dumps(
        {"resourceType": "Bundle", "type": "batch", "entry": [_entry(kind, each) for each in patients]}
    ).encode()


def _entry(kind: str, patient: str) -> dict[str, Any]:
    reference = {"reference": f"Patient/{patient}"}
    if kind == "Task":
        about: dict[str, Any] = {"status": "requested", "intent": "unknown", "description": "call", "for": reference}
        about["requester"] = {"reference": "Practitioner/a"}
    else:
        about = {"status": "active", "request": reference, "created": "2026-01-01", "amount": {"value": 1.25}}
        about |= {"payment": {}, "recipient": {}}
    return {"resource": {"resourceType": kind, **about}, "request": {"method": "POST", "url": kind}}


def send(url: str, headers: dict[str, str], content: bytes, times: int) -> None:
    address = urlsplit(url)
    client = HTTPConnection(str(address.hostname), address.port, timeout=120)
    for _ in range(times):
        client.request("POST", "/", content, headers)
        answer = client.getresponse()
        said = json.loads(answer.read())
        assert all(entry["response"]["status"].startswith("201") for entry in said["entry"]), answer.status
    client.close()


def measured(options: argparse.Namespace, latency: float, clients: int, kind: str) -> Held:
    """Return the times for which bundles hold locks, with one client per process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy = stack.enter_context(proxied(options.postgres / f".s.PGSQL.{options.port}", folder, latency))
        name = stack.enter_context(database(options.postgres, options.port, options.user))
        store = f"postgresql+psycopg://{options.user}@/{name}?port={options.port}&host={folder}"
        world = practice(folder / "world", ENTRIES * clients)
        load = [sys.executable, "-m", "fhir_service", "load", "--store", store, str(world)]
        subprocess.run(load, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        urls = stack.enter_context(services(ROOT, store, clients, folder))
        headers = authorized(ROOT, store, urls[0])
        own = [[f"p{number}" for number in range(n * ENTRIES, (n + 1) * ENTRIES)] for n in range(clients)]
        held = Held()
        for times in (2, options.bundles):
            held = Held()
            proxy.watch = held.watch
            sending = [
                threading.Thread(target=send, args=[url, headers, bundle(kind, some), times])
                for url, some in zip(urls, own, strict=True)
            ]
            for thread in sending:
                thread.start()
            for thread in sending:
                thread.join()
        return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", type=Path, required=True)
    parser.add_argument("--port", type=int, default=5432)
    parser.add_argument("--user", default="postgres")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4], help="each with one client")
    parser.add_argument(
        "--latency", type=float, nargs="+", default=[0, 2], help="milliseconds to the database and back"
    )
    parser.add_argument("--bundles", type=int, default=30, help="bundles of each client")
    options = parser.parse_args()
    for latency, number, kind in itertools.product(options.latency, options.processes, ("Task", "PaymentNotice")):
        held = measured(options, latency / 1000, number, kind)
        said = " ".join(
            f"{name} {1000 * statistics.median(seconds):.1f} ms, at most {1000 * max(seconds):.1f};"
            for name, seconds in (("rows locked", held.locked), ("transaction open", held.open))
        )
        print(f"{ENTRIES} {kind}, {number} processes, {latency:g} ms: {said} {len(held.locked)} commits", flush=True)


if __name__ == "__main__":
    main()
