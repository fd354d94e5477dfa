"""An import through a faulty network: is each payment stored once, and no row in doubt?

usage: network.py URL [--share 0.01] [--at-once] [--single] [--unique] [--payments 10000]
network.py --bundled [--share 0.01] [--at-once] [--payments 10000] URL is a running server of another make, which has
patients. `--bundled` starts a service of ours instead. A proxy loses the share of the answers to writes, repeats the
share of the writes after their answer, and holds the share of the writes for 20 seconds. With `--at-once` it sends the
share of the writes twice at the same time instead. The import is repeated until no row is left. `--single` hides
bundles from the importer, so that each row is a request. `--unique` first gives a HAPI server a unique index of the
payments' identifiers. Prints a JSON line.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.hapi import JSON, SYSTEM, export, patients_of, settings  # noqa: E402 - the folder is not on a script's path
from bench.service import command, serving  # noqa: E402

SAMPLES = HERE.parent / "data" / "samples" / "reference"
HOLD_SECONDS = 20
NONE = "none"
MOST_IMPORTS = 10
KEYS = 50
"""The identifiers that one search asks for."""
PASSED_ON = ("host", "content-type", "accept", "if-none-exist", "if-match", "cache-control", "authorization")
KEPT = ("content-type", "location", "etag", "last-modified")
FATES = ("lost", "twice", "held")
UNIQUE = {
    "resourceType": "SearchParameter",
    "id": "unique-payment-identifier",
    "url": "urn:chartferry:unique-payment-identifier",
    "name": "UniquePaymentIdentifier",
    "status": "active",
    "description": "No two payments have one identifier.",
    "code": "unique-identifier",
    "base": ["PaymentNotice"],
    "type": "composite",
    "expression": "PaymentNotice",
    "component": [
        {"definition": "http://hl7.org/fhir/SearchParameter/PaymentNotice-identifier", "expression": "PaymentNotice"}
    ],
    "extension": [{"url": "http://hapifhir.io/fhir/StructureDefinition/sp-unique", "valueBoolean": True}],
}


class Target(NamedTuple):
    """A server, and the token for it."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return JSON | {"authorization": f"Bearer {self.token}", "cache-control": "no-cache"}


@contextmanager
def bundled(patients: int = 50) -> Iterator[tuple[Target, list[str]]]:
    """Start a service of ours whose patients owe more than is paid. Yield it, and the ids of its patients."""
    with tempfile.TemporaryDirectory() as name:
        store, reference = Path(name) / "service.duckdb", Path(name) / "reference.ndjson"
        ids = [f"b{n}" for n in range(patients)]
        owed = json.loads((SAMPLES / "claim.ndjson").read_text(encoding="utf-8").partition("\n")[0])
        owed |= {"provider": {"reference": "Practitioner/d1"}, "total": {"value": 1_000_000, "currency": "USD"}}
        del owed["item"]
        records: list[dict[str, Any]] = [{"resourceType": "Practitioner", "id": "d1"}]
        records += [{"resourceType": "Patient", "id": one} for one in ids]
        records += [owed | {"id": f"c-{one}", "patient": {"reference": f"Patient/{one}"}} for one in ids]
        reference.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
        command("load", "--store", store, reference)
        client = json.loads(command("client", "add", "--store", store, "--name", "bench"))
        with serving(store) as url:
            form = {"grant_type": "client_credentials"} | {k: client[k] for k in ("client_id", "client_secret")}
            token = httpx.post(f"{url}/auth/token", data=form, trust_env=False).json()["access_token"]
            yield Target(url, token), ids


def index(target: Target) -> None:
    """Give a HAPI server the unique index. Resources that are stored already are not in it."""
    address = f"{target.url}/SearchParameter/{UNIQUE['id']}"
    httpx.put(address, json=UNIQUE, headers=JSON, timeout=60, trust_env=False).raise_for_status()


# -- the network


class Network(BaseHTTPRequestHandler):
    """A proxy that passes requests on, some of them with a fault."""

    protocol_version = "HTTP/1.1"
    target: str
    share: float
    fates: tuple[str, ...]
    single: bool
    did: Counter[str]
    dice: random.Random
    lock: threading.Lock
    client: httpx.Client
    pool: ThreadPoolExecutor

    def do_GET(self) -> None:
        self.answer(self.ask(b""))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        with self.lock:
            drawn = int(self.dice.random() / self.share)
            fate = self.fates[drawn] if drawn < len(self.fates) else "passed"
            self.did[fate] += 1
        if fate == "held":
            time.sleep(HOLD_SECONDS)
        second = self.pool.submit(self.ask, content) if fate == "at once" else None
        answer = self.ask(content)
        if second:
            second.result()
        if fate == "lost":
            self.close_connection = True
            return
        self.answer(answer)
        if fate == "twice":
            self.ask(content)

    do_PUT = do_POST

    def ask(self, content: bytes) -> httpx.Response:
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        return self.client.request(self.command, self.target + self.path, content=content, headers=headers)

    def answer(self, answer: httpx.Response) -> None:
        body = answer.content
        if self.path == "/metadata" and self.single:
            body = body.replace(b'"transaction"', b'"history-system"').replace(b'"batch"', b'"history-system"')
        self.send_response(answer.status_code)
        for name in KEPT:
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A server with a thread per request. It prints nothing about a client that no longer waits for its answer."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


@contextmanager
def network(target: str, share: float, at_once: bool, single: bool) -> Iterator[tuple[str, Counter[str]]]:
    """Start a faulty network before a target. Yield its address, and the counts of its faults."""
    did: Counter[str] = Counter()
    with httpx.Client(timeout=300, trust_env=False) as client, ThreadPoolExecutor(16) as pool:
        about = {"target": target, "share": share, "single": single, "did": did, "client": client, "pool": pool}
        about |= {"fates": ("at once",) if at_once else FATES, "dice": random.Random(21), "lock": threading.Lock()}
        with Server(("127.0.0.1", 0), type("ThisNetwork", (Network,), about)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}", did
            server.shutdown()


# -- an import through it


def through(target: Target, patients: list[str], given: argparse.Namespace) -> None:
    """Import until no row is left. Print the outcome."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy, did = stack.enter_context(network(target.url, given.share, given.at_once, given.single))
        home, path = folder / "home", export(folder, patients, given.payments)
        lines, began = path.read_text(encoding="utf-8").splitlines()[1:], time.perf_counter()
        there = Target(proxy, target.token)
        found, imports = chartferry(home, there, "import", path), 1
        while found["exit_code"] and imports < MOST_IMPORTS:
            time.sleep(1)
            found, imports = chartferry(home, there, "import", path), imports + 1
        seconds = time.perf_counter() - began
        keys = Counter(keys_of(target, [line.partition(",")[0] for line in lines]))
        said = {"payments": given.payments, "single": given.single, "imports": imports, "seconds": round(seconds, 1)}
        said |= {**did, "there": len(keys), "double": keys.total() - len(keys)}
        said |= {"in_doubt": found["totals"].get("in_doubt", 0)}
        print(json.dumps(said), flush=True)
        print(json.dumps({"verify": chartferry(home, there, "verify")["counts"]}), flush=True)


def chartferry(home: Path, target: Target, *arguments: object) -> dict[str, Any]:
    """Run a command with `--json`. Return its answer; only the exit code if the target could not be used."""
    words = [Path(sys.executable).parent / "chartferry", "--home", home, *arguments, "--json"]
    variables = settings(target.url) | {"FHIR_TOKEN": target.token}
    done = subprocess.run([*map(str, words)], env=variables, capture_output=True, text=True, check=False)
    if not done.stdout:
        print(done.stderr[-500:], file=sys.stderr, flush=True)
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return {"exit_code": done.returncode, "totals": {}, "counts": None} | found


def keys_of(target: Target, keys: Sequence[str]) -> Iterator[str]:
    """Yield the keys that the server has, each once per resource with that key."""
    for at in range(0, len(keys), KEYS):
        asked = ",".join(f"{SYSTEM}%7C{key}" for key in keys[at : at + KEYS])
        link = f"{target.url}/PaymentNotice?identifier={asked}&_count=100"
        while link:
            page = httpx.get(link, headers=target.headers, timeout=300, trust_env=False).raise_for_status().json()
            for entry in page.get("entry", ()):
                yield from (each["value"] for each in entry["resource"].get("identifier", ()))
            following = next((each["url"] for each in page.get("link", ()) if each["relation"] == "next"), "")
            link = str(httpx.URL(target.url).join(following)) if following else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--bundled", action="store_true")
    parser.add_argument("--payments", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--unique", action="store_true")
    given = parser.parse_args()
    if given.bundled:
        with bundled() as (target, patients):
            through(target, patients, given)
    else:
        target = Target(given.url.rstrip("/"), NONE)
        if given.unique:
            index(target)
        through(target, patients_of(target.url), given)


if __name__ == "__main__":
    os.umask(0o077)
    main()
