"""One import of ten million rows: the rate of each tenth of the rows, the memory, and the bytes on the disk.

usage: large.py [--tasks N] [--patients N] [--out FILE]
Needs some 25 GB in the folder for temporary files (`TMPDIR`), and about half an hour. Prints a table and writes
`bench/large.json`.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.million import SIZES, bytes_of, fresh_home, imported, made, took  # noqa: E402 - the project's own folder
from bench.run import CORES, MEGABYTE, Cell, Measured, about, keep_to, serving, table  # noqa: E402

COLUMNS: dict[str, Cell] = {
    "tasks": lambda m: f"{m['records']:,}",
    "seconds": lambda m: f"{m['seconds']:,.0f}",
    "per second": lambda m: f"{m['per_second']:,.0f}",
    "tenth by tenth, thousands": lambda m: " ".join(f"{rate / 1000:.1f}" for rate in m["tenths"]),
    "MB importer": lambda m: f"{m['peak_bytes']['importer'] / MEGABYTE:,.0f}",
    "MB service": lambda m: f"{m['peak_bytes']['service'] / MEGABYTE:,.0f}",
    "bytes a task": lambda m: ", ".join(f"{name} {size:,.0f}" for name, size in m["bytes_a_record"].items()),
}
"""tenth by tenth: rows a second of each tenth. bytes a task: on the disk."""


def measure(tasks: int, patients: int, folder: Path) -> Measured:
    rows, store = made(folder, patients, dict.fromkeys(SIZES, 0) | {"tasks": tasks})
    home, service = fresh_home(folder, store), dict[str, object]()
    with serving(home, service):
        found = imported(home, rows / "inbox" / "tasks.csv")
    if found["state"] != "finished" or found["created_now"] != tasks:
        sys.exit(f"{found['created_now']} created where {tasks} were to be; the batch is {found['state']}")
    disk = {name: bytes_of(home / name) for name in ("service.duckdb", "ledger.db", "journal.ndjson", "batches")}
    return {
        "records": tasks,
        "seconds": took(found),
        "per_second": tasks / took(found),
        "tenths": found["tenths"],
        "stages": found["stages"],
        "peak_bytes": {"importer": found["peak_bytes"], "service": service["peak_bytes"]},
        "bytes_a_record": {name: size / tasks for name, size in disk.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures one import of ten million rows.")
    parser.add_argument("--tasks", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--patients", type=int, default=100_000, metavar="N")
    parser.add_argument("--out", type=Path, default=HERE / "large.json", metavar="FILE")
    given = parser.parse_args()
    where = about(keep_to(CORES))
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as name:
        found = measure(given.tasks, given.patients, Path(name))
    print(table([found], COLUMNS))
    given.out.write_text(json.dumps({"about": where, **found}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
