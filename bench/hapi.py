"""An import into HAPI FHIR beside a bare loop of the same transactions.

usage: hapi.py URL [--payments 10000] [--rounds 3] [--before CHECKOUT [--rows-before 600]]
The server must run and have patients. Every payment is new: one dollar for one of them. Import and loop alternate. The
loop sends transactions of the same size, as many at once, and records nothing. `--before` names a checkout of an
earlier version with its `.venv`: its importer takes part, too, with fewer rows. Prints JSON lines.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import environment  # noqa: E402 - the project's own folder is not on a script's path
from pipelines.client.client import conditional_bundle  # noqa: E402
from pipelines.client.profiles import ROWS_A_BUNDLE, profile_for  # noqa: E402
from pipelines.loading.sending_loop import BUNDLES_AT_ONCE  # noqa: E402

SYSTEM = "urn:chartferry:default:PaymentNotice"
JSON = {"content-type": "application/fhir+json", "accept": "application/json"}


def patients_of(url: str) -> list[str]:
    """Return ids of patients that the server has."""
    page = httpx.get(f"{url}/Patient?_count=50&_elements=id", headers=JSON, timeout=60, trust_env=False).json()
    return [entry["resource"]["id"] for entry in page["entry"]]


def software_of(url: str) -> str:
    """Return the name of the server's software."""
    statement = httpx.get(f"{url}/metadata", headers=JSON, timeout=600, trust_env=False).json()
    return str(statement["software"]["name"])


# -- two ways


def bare_loop(url: str, patients: Sequence[str], payments: int, rows: int) -> float:
    """Send transactions of conditional creates, several at once. Return the seconds."""
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

    parts = [range(at, min(at + rows, payments)) for at in range(0, payments, rows)]
    bundles = [conditional_bundle("PaymentNotice", [entry(n) for n in part], "transaction") for part in parts]
    with httpx.Client(timeout=300, trust_env=False) as client, ThreadPoolExecutor(BUNDLES_AT_ONCE) as pool:
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


def imported(url: str, path: Path, home: Path, before: Path | None = None) -> dict[str, Any]:
    """Import a file, by the importer of another checkout if one is given. Return the seconds of each stage."""
    python = before / ".venv" / "bin" / "python" if before else sys.executable
    program = (before or HERE.parent) / "bench" / "import_one.py"
    words = [*map(str, (python, program, home, path))]
    done = subprocess.run(words, env=settings(url), cwd=before, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def side_by_side(url: str, given: argparse.Namespace) -> None:
    """Let import and loop alternate. Print the rate of each, and the ratio of the import to the loop."""
    patients, rates = patients_of(url), defaultdict[str, list[float]](list)
    rows = profile_for(software_of(url)).rows_a_bundle or ROWS_A_BUNDLE

    def tell(number: int, way: str, payments: int, seconds: float, **more: Any) -> None:
        rates[way].append(payments / seconds)
        said = {"round": number, "way": way, "payments": payments, "seconds": round(seconds, 2)}
        print(json.dumps({**said, "a_second": round(payments / seconds), **more}), flush=True)

    def by_import(number: int, way: str, payments: int, before: Path | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            took = imported(url, export(Path(folder), patients, payments), home, before)
        tell(number, way, payments, sum(stage["seconds"] for stage in took["stages"].values()), **took)

    for number in range(given.rounds):
        by_import(number, "import", given.payments, None)
        tell(number, "bare loop", given.payments, bare_loop(url, patients, given.payments, rows))
        if given.before:
            by_import(number, "before", given.rows_before, given.before.resolve())
    median = {way: statistics.median(found) for way, found in rates.items()}
    print(json.dumps({f"to the {way}": round(median["import"] / rate, 2) for way, rate in median.items()}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--payments", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="An earlier version, with its .venv.")
    parser.add_argument("--rows-before", type=int, default=600)
    given = parser.parse_args()
    side_by_side(given.url.rstrip("/"), given)


if __name__ == "__main__":
    os.umask(0o077)
    main()
