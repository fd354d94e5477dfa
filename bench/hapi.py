"""An import into HAPI FHIR: beside a bare loop of the same transactions, or through a network that does wrong.

usage: hapi.py URL [--payments 10000] [--rounds 2]
       hapi.py URL --faults 0.01 [--single] [--payments 10000]
The server runs already, and has patients. Every payment is new: one dollar for one of them. Without `--faults` import
and loop alternate; the loop sends as many transactions of 500 at once as the import does, and keeps no account of them.
With `--faults` a proxy loses that share of the answers to writes, sends that share of the writes again after their
answer, and holds that share for 20 seconds; the import is repeated until nothing is left. `--single` hides
transactions from the importer, so that each row is a request. Prints JSON lines.
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
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import environment  # noqa: E402 - the project's own folder is not on a script's path
from pipelines.client.client import conditional_bundle  # noqa: E402
from pipelines.loading.bundles import LINES, ROWS_A_BUNDLE  # noqa: E402

SYSTEM = "urn:chartferry:default:PaymentNotice"
HOLD_SECONDS = 20
MOST_IMPORTS = 10
JSON = {"content-type": "application/fhir+json", "accept": "application/json"}
KEPT = ("content-type", "location", "etag", "last-modified")


def patients_of(url: str) -> list[str]:
    """Return ids of patients that the server has."""
    page = httpx.get(f"{url}/Patient?_count=50&_elements=id", headers=JSON, timeout=60, trust_env=False).json()
    return [entry["resource"]["id"] for entry in page["entry"]]


# -- two ways


def bare_loop(url: str, patients: Sequence[str], payments: int) -> float:
    """Send transactions of conditional creates, some at once; return the seconds."""
    name = uuid.uuid4().hex[:8]

    def entry(number: int) -> tuple[str, str]:
        key = f"{name}-{number}"
        body = {
            "resourceType": "PaymentNotice",
            "status": "active",
            "created": "2026-03-01T00:00:00Z",
            "request": {"reference": f"Patient/{patients[number % len(patients)]}"},
            "amount": {"value": 1.0, "currency": "USD"},
            "payment": {},
            "recipient": {},
            "identifier": [{"system": SYSTEM, "value": key}],
        }
        return json.dumps(body, separators=(",", ":")), json.dumps(f"identifier={SYSTEM}|{key}")

    parts = [range(at, min(at + ROWS_A_BUNDLE, payments)) for at in range(0, payments, ROWS_A_BUNDLE)]
    bundles = [conditional_bundle("PaymentNotice", [entry(n) for n in part], "transaction") for part in parts]
    with httpx.Client(timeout=300, trust_env=False) as client, ThreadPoolExecutor(LINES) as pool:
        began = time.perf_counter()
        answers = pool.map(lambda bundle: client.post(f"{url}/", content=bundle, headers=JSON), bundles)
        made = sum(
            each["response"]["status"].startswith("201") for answer in answers for each in answer.json()["entry"]
        )
        seconds = time.perf_counter() - began
    assert made == payments, f"{made} of {payments} were made"
    return seconds


def export(folder: Path, patients: Sequence[str], payments: int) -> Path:
    """Write a file of new payments."""
    name, path = uuid.uuid4().hex[:8], folder / "payments.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("payment_id,patient_id,amount,paid_on,claim_id\n")
        for number in range(payments):
            file.write(f"{name}-{number},{patients[number % len(patients)]},1.00,2026-03-01,\n")
    return path


def settings(url: str) -> dict[str, str]:
    return environment() | {"FHIR_BASE_URL": url, "FHIR_TOKEN": "none", "CHARTFERRY_SETTLING_SECONDS": "1"}


def imported(url: str, path: Path, home: Path) -> dict[str, Any]:
    """Import a file; return what each stage took."""
    words = [sys.executable, str(HERE / "import_one.py"), str(home), str(path)]
    done = subprocess.run(words, env=settings(url), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def side_by_side(url: str, payments: int, rounds: int) -> None:
    """Let both ways alternate, and print what each took."""
    patients = patients_of(url)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            took = imported(url, export(Path(folder), patients, payments), home)
            print(json.dumps({"round": number, "way": "import", "payments": payments, **took}), flush=True)
        seconds = bare_loop(url, patients, payments)
        print(json.dumps({"round": number, "way": "bare loop", "payments": payments, "seconds": seconds}), flush=True)


# -- a network that does wrong


class Network(BaseHTTPRequestHandler):
    """Hands requests on, and does some of them wrong."""

    protocol_version = "HTTP/1.1"
    target: str
    share: float
    single: bool
    did: Counter[str]
    dice: random.Random
    lock: threading.Lock
    client: httpx.Client

    def do_GET(self) -> None:
        self.pass_on(b"")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        with self.lock:
            fate = int(self.dice.random() / self.share) if self.share else 3
            name = ("lost", "twice", "held")[fate] if fate < 3 else "passed"
            self.did[name] += 1
        if name == "held":
            time.sleep(HOLD_SECONDS)
        self.pass_on(content, lost=name == "lost")
        if name == "twice":
            self.ask(content)

    do_PUT = do_POST

    def ask(self, content: bytes) -> httpx.Response:
        names = ("content-type", "accept", "if-none-exist", "if-match", "cache-control")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        return self.client.request(self.command, self.target + self.path, content=content, headers=headers)

    def pass_on(self, content: bytes, lost: bool = False) -> None:
        answer = self.ask(content)
        if lost:
            self.close_connection = True
            return
        body = answer.content
        if self.path == "/metadata" and self.single:
            body = body.replace(b'"transaction"', b'"history-system"')
        self.send_response(answer.status_code)
        for name in KEPT:
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def network(target: str, share: float, single: bool) -> Iterator[tuple[str, Counter[str]]]:
    """The address of a network before the target, and what it has done."""
    did: Counter[str] = Counter()
    with httpx.Client(timeout=300, trust_env=False) as client:
        about = {"target": target, "share": share, "single": single, "did": did, "client": client}
        about |= {"dice": random.Random(21), "lock": threading.Lock()}
        with ThreadingHTTPServer(("127.0.0.1", 0), type("ThisNetwork", (Network,), about)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}", did
            server.shutdown()


def through_faults(url: str, payments: int, share: float, single: bool) -> None:
    """Import until nothing is left, and print what came of it."""
    with tempfile.TemporaryDirectory() as folder, network(url, share, single) as (proxy, did):
        home, path = Path(folder) / "home", export(Path(folder), patients_of(url), payments)
        name, began = path.read_text(encoding="utf-8").splitlines()[1].partition("-")[0], time.perf_counter()
        found, imports = chartferry(home, proxy, "import", path), 1
        while found["exit_code"] and imports < MOST_IMPORTS:
            time.sleep(1)
            found, imports = chartferry(home, proxy, "import", path), imports + 1
        seconds = time.perf_counter() - began
        verified = chartferry(home, proxy, "verify")
        said = {"payments": payments, "single": single, "imports": imports, "seconds": round(seconds, 1), **did}
        said |= {"there": there(url, name), "in_doubt": found["totals"].get("in_doubt", 0)}
        print(json.dumps({**said, "verify": verified["counts"], "cents": verified["target_cents"]}), flush=True)


def chartferry(home: Path, url: str, *arguments: object) -> dict[str, Any]:
    """Run a command with `--json`."""
    words = [Path(sys.executable).parent / "chartferry", "--home", home, *arguments, "--json"]
    done = subprocess.run([*map(str, words)], env=settings(url), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-500:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def there(url: str, name: str) -> int:
    """Return how many payments the server has whose keys begin so."""
    found, link = 0, f"{url}/PaymentNotice?identifier={SYSTEM}%7C&_count=1000&_elements=identifier"
    while link:
        page = httpx.get(link, headers=JSON | {"cache-control": "no-cache"}, timeout=300, trust_env=False).json()
        for entry in page.get("entry", ()):
            found += any(each["value"].startswith(f"{name}-") for each in entry["resource"].get("identifier", ()))
        link = next((each["url"] for each in page.get("link", ()) if each["relation"] == "next"), "")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--payments", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--single", action="store_true")
    given = parser.parse_args()
    if given.faults:
        through_faults(given.url.rstrip("/"), given.payments, given.faults, given.single)
    else:
        side_by_side(given.url.rstrip("/"), given.payments, given.rounds)


if __name__ == "__main__":
    os.umask(0o077)
    main()
