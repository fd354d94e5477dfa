"""The sweep and the publication: all reports of the bundled service over HTTP, beside a loop that just fetches them.

usage: reports.py [--reports 100000] [--results] [--out FILE]
The service, the sweep and the bare loop are processes of their own on the same two cores. `first`: everything is new;
`again`: nothing has changed. With `--results` each report has Observations of its own, which the sweep reads as well,
and the bare loop does not. Prints a table and writes `bench/reports.json`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import CORES, MEGABYTE, about, environment, keep_to, serving  # noqa: E402 - see bench/service.py

SAMPLES = HERE.parent / "data" / "samples" / "reference"
DAYS = 3 * 365
BARE = """
import json, sys
import httpx
url, form = sys.argv[1], json.loads(sys.argv[2])
with httpx.Client(base_url=url, timeout=60) as http:
    token = http.post("/auth/token", data={"grant_type": "client_credentials"} | form).json()["access_token"]
    path, ids = "/DiagnosticReport?_count=100", set()
    while path:
        page = http.get(path, headers={"authorization": f"Bearer {token}"}).json()
        ids.update(entry["resource"]["id"] for entry in page["entry"])
        path = next((link["url"] for link in page["link"] if link["relation"] == "next"), None)
print(len(ids))
"""
Row = dict[str, Any]


def make_reference(folder: Path, reports: int, results: bool = False) -> None:
    """Write the samples' reference data, with its reports repeated under new ids over three years.

    results: also repeat the Observations. Without it all repetitions of a report name the same Observations.
    """
    folder.mkdir()
    for path in SAMPLES.glob("*.ndjson"):
        if path.stem != "diagnostic_report":
            shutil.copy(path, folder)
    lines = (SAMPLES / "diagnostic_report.ndjson").read_text(encoding="utf-8").splitlines()
    bodies = [body for line in lines if (body := json.loads(line))["status"] != "preliminary"]
    write(folder / "diagnostic_report.ndjson", (moved(bodies[n % len(bodies)], n, results) for n in range(reports)))
    if results:
        write(folder / "observation.ndjson", results_of([bodies[n % len(bodies)] for n in range(reports)]))


def write(path: Path, bodies: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for body in bodies:
            json.dump(body, file)
            file.write("\n")


def results_of(reports: Sequence[Row]) -> Iterator[Row]:
    """Yield the Observations of reports, under the ids that `moved` gives them."""
    lines = (SAMPLES / "observation.ndjson").read_text(encoding="utf-8").splitlines()
    known = {body["id"]: body for line in lines if (body := json.loads(line))}
    for number, report in enumerate(reports):
        for result in report.get("result", ()):
            name = result["reference"].removeprefix("Observation/")
            if name in known:
                yield {**known[name], "id": f"{name}-{number:07}"}


def moved(body: Row, number: int, results: bool = False) -> Row:
    """Return a report under another id and some days earlier. results: also with Observations of its own."""
    days = timedelta(days=number * 7919 % DAYS)
    told = {name: body[name] for name in ("effectiveDateTime", "issued") if name in body}
    times = {name: (datetime.fromisoformat(said) - days).isoformat() for name, said in told.items() if len(said) > 10}
    named = [{"reference": f"{each['reference']}-{number:07}"} for each in body.get("result", ())]
    return {**body, "id": f"rep-{number:07}"} | times | ({"result": named} if results and named else {})


def measured(what: str, *arguments: object) -> Row:
    """Run a Python process. Return its seconds, CPU seconds, peak bytes of memory and output. Exits if it fails."""
    began = time.monotonic()
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [sys.executable, *map(str, arguments)], cwd=HERE.parent, env=environment(), stdout=said, stderr=said
        ) as process,
    ):
        _, status, spent = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        printed = said.read().decode()
    if process.returncode:
        sys.exit(f"{what} failed:\n{printed}")
    peak = spent.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    seconds = time.monotonic() - began
    return {
        "what": what,
        "seconds": seconds,
        "cpu": spent.ru_utime + spent.ru_stime,
        "peak_bytes": peak,
        "said": printed,
    }


def measure(reports: int, results: bool, folder: Path) -> Iterator[Row]:
    """Measure the load of the reports, then the bare loop and two publications over one service."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    make_reference(folder / "reference", reports, results)
    store = home / "service.duckdb"
    made = measured("client", "-m", "fhir_service", "client", "add", "--store", store, "--name", "bench")
    form = {name: json.loads(made["said"])[name] for name in ("client_id", "client_secret")}
    # The samples hold records that are refused, so that the load ends with 3. What it stored is counted below.
    load = [sys.executable, "-m", "fhir_service", "load", "--store", str(store), str(folder / "reference")]
    subprocess.run(load, cwd=HERE.parent, env=environment(), capture_output=True, check=False)
    service: Row = {}
    with serving(home, service):
        url = json.loads((home / "service.duckdb.run").read_text(encoding="utf-8"))["url"]
        bare = measured("bare loop", "-c", BARE, url, json.dumps(form))
        if int(bare["said"]) != reports:
            sys.exit(f"{bare['said']} of {reports} reports were loaded")
        yield bare
        for what in ("first", "again"):
            yield measured(what, "-m", "pipelines.cli", "--home", home, "reports")
    check_results(home, reports if results else 0)
    yield {"what": "service, all three", "seconds": None, **service}


def check_results(home: Path, reports: int) -> None:
    """End the benchmark if fewer results are published than there are reports."""
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as db:
        [(results,)] = db.sql("SELECT count(*) FROM observation").fetchall()
    print(f"{results} results are published")
    if results < reports:
        sys.exit("too few")


def table(rows: list[Row]) -> str:
    bare = rows[0]
    lines = [f"{'':<20}{'seconds':>9}{'CPU s':>9}{'MB':>7}{'times the bare loop':>21}"]
    for row in rows:
        seconds, ratio = (
            ("", "") if row["seconds"] is None else (f"{row['seconds']:.1f}", f"{row['seconds'] / bare['seconds']:.2f}")
        )
        lines.append(f"{row['what']:<20}{seconds:>9}{row['cpu']:>9.1f}{row['peak_bytes'] / MEGABYTE:>7.0f}{ratio:>21}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the sweep and the publication beside a bare loop.")
    parser.add_argument("--reports", type=int, default=100_000, metavar="N")
    parser.add_argument("--results", action="store_true", help="each report has Observations of its own")
    parser.add_argument("--out", type=Path, default=HERE / "reports.json", metavar="FILE")
    given = parser.parse_args()
    where = about(keep_to(CORES))
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as folder:
        rows = [
            {name: value for name, value in row.items() if name != "said"}
            for row in measure(given.reports, given.results, Path(folder))
        ]
    print(table(rows))
    given.out.write_text(
        json.dumps({"about": where, "reports": given.reports, "results": given.results, "rows": rows}, indent=1) + "\n",
        encoding="utf-8",
    )
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
