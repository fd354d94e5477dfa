"""First pages of searches by each parameter, without a cache, and pages far from the beginning.

usage: pages.py [--tasks 1000000] [--requests 200] [--also FILE]
One client searches for other values each time. Prints a table with the milliseconds that half of the answers and 99 of
100 took, and their limits, and writes `bench/pages.json`. Exit code 1 if an answer exceeds its limit.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import httpx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import keep_to  # noqa: E402 - the project's own folder is not on a script's path
from bench.service import PATIENTS, Connection, Row, figures, fill, prepared, serving, show  # noqa: E402

FLAT, SLOW, FAR = (6, 15), (60, 120), (40, 80)
"""The limits: milliseconds that half of the answers may take, and 99 of 100."""
SEARCHES: dict[str, tuple[str, tuple[int, int]]] = {
    "all": ("_offset={few}", FLAT),
    "_id": ("_id={id}", FLAT),
    "identifier": ("identifier=urn:chartferry:default:Task%7Ck{key}", FLAT),
    "patient": ("patient=Patient/b{patient}", FLAT),
    "patient and status": ("patient=Patient/b{patient}&status=requested", FLAT),
    "owner": ("owner=Practitioner/d{few}", FLAT),
    "requester": ("requester=Practitioner/d{few}", FLAT),
    "status": ("status=requested&_offset={few}", FLAT),
    "label of a fiftieth": ("label=urgent&_offset={few}", FLAT),
    "label of nearly all": ("label=routine&_offset={few}", FLAT),
    "due": ("due=ge2026-06-0{few}", FLAT),
    "modified": ("modified=ge2026-01-0{few}", FLAT),
    "description": ("description=call%20{patient}", SLOW),
    "sort due-date": ("_sort=due-date&_offset={few}", FLAT),
    "sort -due-date": ("_sort=-due-date&_offset={few}", FLAT),
    "sort _id": ("_sort=_id&_offset={few}", FLAT),
    "sort due-date, far": ("_sort=due-date&_offset={far}", FAR),
    "sort -due-date, far": ("_sort=-due-date&_offset={far}", FAR),
}


async def asked(url: str, headers: dict[str, str], paths: list[str]) -> list[float]:
    """Return the seconds of each request. One client sends them one after another."""
    connection = await Connection(url, headers).open()
    taken = []
    for path in paths:
        began = time.perf_counter()
        status = await connection.send("GET", path)
        taken.append(time.perf_counter() - began)
        if status != 200:
            sys.exit(f"{path} answered {status}")
    connection.close()
    return taken


def measured(url: str, headers: dict[str, str], tasks: int, requests: int) -> list[Row]:
    page = httpx.get(f"{url}/Task?_count=1000&_offset={tasks // 2}", headers=headers, timeout=60).json()
    ids = [one["resource"]["id"] for one in page["entry"]]
    rows = []
    for what, (query, (half, nearly_all)) in SEARCHES.items():
        paths = [
            "/Task?"
            + query.format(
                id=ids[n % len(ids)],
                key=n * 7919 % tasks,
                patient=n * 7 % PATIENTS,
                few=n % 7 + 1,
                far=tasks * 2 // 5 + n,
            )
            for n in range(requests)
        ]
        found = figures(asyncio.run(asked(url, headers, paths)), 1)
        del found["per_second"]
        rows.append(show({"what": what} | found | {"half_may_be_ms": half, "p99_may_be_ms": nearly_all}))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--also", type=Path)
    options = parser.parse_args()
    cores = keep_to(2)
    with tempfile.TemporaryDirectory() as temporary:
        store, headers = prepared(Path(temporary))
        with serving(store) as url:
            fill(url, headers, 0, options.tasks)
        with serving(store, {"FHIR_SERVICE_CACHE": "0"}) as url:
            rows = measured(url, headers, options.tasks, options.requests)
    for path in filter(None, (HERE / "pages.json", options.also)):
        path.write_text(json.dumps({"cores": cores, "tasks": options.tasks, "rows": rows}, indent=1) + "\n")
    if beyond := [r["what"] for r in rows if r["p50_ms"] > r["half_may_be_ms"] or r["p99_ms"] > r["p99_may_be_ms"]]:
        sys.exit(f"too long: {'; '.join(beyond)}")


if __name__ == "__main__":
    main()
