"""An import into HAPI FHIR beside a bare loop of the same transactions.

usage: hapi.py URL [--payments 10000] [--rounds 2]
The server runs already, and has patients. Every payment is new: one dollar for one of them. Import and loop alternate;
the loop sends as many transactions of 500 at once as the import does, and keeps no account of them. Prints JSON lines.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import environment  # noqa: E402 - the project's own folder is not on a script's path
from pipelines.client.creates import conditional_bundle  # noqa: E402
from pipelines.loading.bundles import LINES, ROWS_A_BUNDLE  # noqa: E402

SYSTEM = "urn:chartferry:default:PaymentNotice"
JSON = {"content-type": "application/fhir+json", "accept": "application/json"}


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--payments", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    side_by_side(given.url.rstrip("/"), given.payments, given.rounds)


if __name__ == "__main__":
    os.umask(0o077)
    main()
