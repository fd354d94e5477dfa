"""The sweep and the publication: all reports of the bundled service over HTTP, beside a loop that just fetches them.

usage: reports.py [--reports 100000] [--out FILE]
The service, the sweep and the bare loop are processes of their own on the same two cores. `first`: everything is new;
`again`: nothing has changed. Prints a table and writes `bench/reports.json`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

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


def make_reference(folder: Path, reports: int) -> None:
    """The samples' reference data, its reports repeated under new ids over three years."""
    folder.mkdir()
    for path in SAMPLES.glob("*.ndjson"):
        if path.stem != "diagnostic_report":
            shutil.copy(path, folder)
    lines = (SAMPLES / "diagnostic_report.ndjson").read_text(encoding="utf-8").splitlines()
    bodies = [body for line in lines if (body := json.loads(line))["status"] != "preliminary"]
    with (folder / "diagnostic_report.ndjson").open("w", encoding="utf-8") as file:
        for number in range(reports):
            json.dump(moved(bodies[number % len(bodies)], number), file)
            file.write("\n")


def moved(body: Row, number: int) -> Row:
    """The report under another id, some days earlier."""
    days = timedelta(days=number * 7919 % DAYS)
    told = {name: body[name] for name in ("effectiveDateTime", "issued") if name in body}
    times = {name: (datetime.fromisoformat(said) - days).isoformat() for name, said in told.items() if len(said) > 10}
    return {**body, "id": f"rep-{number:07}"} | times


def measured(what: str, *arguments: object) -> Row:
    """Seconds, CPU seconds and peak memory (bytes) of a Python process, and what it prints. Ends when it fails."""
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


def measure(reports: int, folder: Path) -> Iterator[Row]:
    """The load of the reports; then the bare loop and two publications over one service."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    make_reference(folder / "reference", reports)
    store = home / "service.duckdb"
    made = measured("client", "-m", "fhir_service", "client", "add", "--store", store, "--name", "bench")
    form = {name: json.loads(made["said"])[name] for name in ("client_id", "client_secret")}
    # The samples' own oddities make the load end with 3; what it stored is counted below.
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
    yield {"what": "service, all three", "seconds": None, **service}


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
    parser.add_argument("--out", type=Path, default=HERE / "reports.json", metavar="FILE")
    given = parser.parse_args()
    where = about(keep_to(CORES))
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as folder:
        rows = [
            {name: value for name, value in row.items() if name != "said"}
            for row in measure(given.reports, Path(folder))
        ]
    print(table(rows))
    given.out.write_text(
        json.dumps({"about": where, "reports": given.reports, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
