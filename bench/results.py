"""Exchanges and seconds of a sweep of reports with their results: by `_include`, and by `_id` in groups of two sizes.

usage: results.py URL [--reports 2000] [--each 3] [--rounds 2]
The server must run, take transactions of PUTs, and need no token. Each report has its own results. Each way reads all
reports and results into a new home, which is removed afterwards. Prints JSON lines.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pipelines.client.client import FhirClient  # noqa: E402 - the project's own folder is not on a script's path
from pipelines.client.profiles import profile_for  # noqa: E402
from pipelines.client.tokens import Credentials  # noqa: E402
from pipelines.reports import results  # noqa: E402
from pipelines.reports.results import with_results  # noqa: E402
from pipelines.reports.sweep import sweep  # noqa: E402

JSON = {"content-type": "application/fhir+json", "accept": "application/json"}
BUNDLE = 200
WAYS = {"by _include": 500, "by _id, up to 500": 500, "by _id, up to 100": 100}


def resources(reports: int, each: int) -> Iterator[dict[str, Any]]:
    """Yield a patient, then for each report its results and the report."""
    yield {"resourceType": "Patient", "id": "bench-patient"}
    subject = {"subject": {"reference": "Patient/bench-patient"}, "status": "final"}
    for number in range(reports):
        names = [f"bench-{number}-{place}" for place in range(each)]
        for name in names:
            code = {"coding": [{"system": "http://loinc.org", "code": "4548-4"}]}
            value = {"value": 6.1, "unit": "%"}
            yield {"resourceType": "Observation", "id": name, **subject, "code": code, "valueQuantity": value}
        result = [{"reference": f"Observation/{name}"} for name in names]
        yield {
            "resourceType": "DiagnosticReport",
            "id": f"bench-{number}",
            **subject,
            "code": {"text": "Bench"},
            "result": result,
        }


def fill(url: str, reports: int, each: int) -> None:
    """Put the resources to the server, in transactions."""
    entries = [
        {"resource": body, "request": {"method": "PUT", "url": f"{body['resourceType']}/{body['id']}"}}
        for body in resources(reports, each)
    ]
    with httpx.Client(timeout=300, trust_env=False) as client:
        for at in range(0, len(entries), BUNDLE):
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries[at : at + BUNDLE]}
            client.post(url, content=json.dumps(bundle), headers=JSON).raise_for_status()


def measured(url: str, way: str) -> dict[str, Any]:
    """Return exchanges and seconds of a sweep of reports and results in one way."""
    exchanges = [0]

    def count() -> None:
        exchanges[0] += 1

    profile = profile_for(software_of(url))
    open_to_all = Credentials(token="none")  # noqa: S106 - no secret
    client = FhirClient(url, open_to_all, before_each=count, profile=profile)
    with tempfile.TemporaryDirectory() as name, mock.patch.object(results, "IDS_A_REQUEST", WAYS[way]):
        home, began, cpu = Path(name), time.perf_counter(), time.process_time()
        with with_results(client, home) as including:
            asked: Any = including if way == "by _include" else client
            swept = sweep(asked, home, url)
            of_reports = exchanges[0]
            file = including.file if including.file.exists() else None
            found = results.sweep_results(client, home, url, included=file)
        seconds = time.perf_counter() - began
    client.close()
    return {
        "way": way,
        "reports": swept.total,
        "results": found,
        "exchanges_for_reports": of_reports,
        "exchanges_for_results": exchanges[0] - of_reports,
        "seconds": round(seconds, 2),
        "cpu_seconds_here": round(time.process_time() - cpu, 2),
    }


def software_of(url: str) -> str:
    """Return the name of the server's software."""
    statement = httpx.get(f"{url}/metadata", headers=JSON, timeout=600, trust_env=False).json()
    return str(statement["software"]["name"])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("url")
    options.add_argument("--reports", type=int, default=2_000)
    options.add_argument("--each", type=int, default=3)
    options.add_argument("--rounds", type=int, default=2)
    given = options.parse_args()
    fill(given.url, given.reports, given.each)
    for _ in range(given.rounds):
        for way in WAYS:
            print(json.dumps(measured(given.url, way)), flush=True)


if __name__ == "__main__":
    main()
