"""Imports of a million rows, repeated imports, and imports over a slow line: effects that 100,000 rows do not show.

usage: million.py [--patients N] [--payments N] [--tasks N] [--responses N] [--bare N] [--latency MS] [--only KIND]
For each kind, in a fresh home: the bare loop; the import; the same file again (the same batch); the file with one row
more (another batch, in which all rows but one are known). Then some rows one by one, to the interface alone, each
request some milliseconds late. Prints two tables and writes `bench/million.json`.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.latency import later  # noqa: E402 - the project's own folder is not on a script's path
from bench.run import (  # noqa: E402
    CORES,
    KINDS,
    MEGABYTE,
    Cell,
    Measured,
    about,
    bare_loop,
    keep_to,
    python,
    serving,
    table,
)

SIZES = {"payments": 1_000_000, "tasks": 1_000_000, "responses": 100_000}
AT_ONCE = 8
ONE_MORE = {
    "payments": "P-one-more,p0,0.50,2026-06-01,\n",
    "tasks": "T-one-more,p0,Call,requested,dr0,,,2026-06-01T09:00:00Z,,,,,\n",
    "answers": "R-one-more,p0,q-bench,2026-06-01T10:00:00Z,Patient/p0,,,/44250-9,LA6568-5,,\n",
}


# --- Measuring ---------------------------------------------------------------------------------------


def whole(kind: str, rows: Path, store: Path, folder: Path) -> Measured:
    """Import a file, import it again, and import it with one row more, in a new home. Return the figures of each."""
    file = rows / "inbox" / f"{kind}.csv"
    bare = bare_loop(HERE / "bare_loop.py", kind, rows)
    home = fresh_home(folder, store)
    service: Measured = {}
    with serving(home, service):
        first = imported(home, file)
        disk = {name: bytes_of(home / name) for name in ("ledger.db", "batches")}
        again = imported(home, file)
        with file.open("a", encoding="utf-8") as out:
            out.write(ONE_MORE[kind])
        more = imported(home, file)
    disk["audit"] = bytes_of(home / "service.duckdb.audit.ndjson")
    disk["service.duckdb"] = bytes_of(home / "service.duckdb") - bytes_of(store) - disk["audit"]
    shutil.rmtree(home)
    records = first["counts"]["records"]
    check_counts(kind, records, first, again, more)
    return {
        "kind": kind,
        "records": records,
        "seconds": took(first),
        "per_second": records / took(first),
        "bare_per_second": bare["per_second"],
        "ratio": bare["per_second"] * took(first) / records,
        "stages": first["stages"],
        "last_tenth_to_first": first["decay"],
        "peak_bytes": {"importer": peak(first, again, more), "service": service["peak_bytes"]},
        "bytes_a_record": {name: size / records for name, size in disk.items()},
        "again": {"seconds": took(again), "created": again["created_now"], "stages": again["stages"]},
        "one_more": {"seconds": took(more), "created": more["created_now"], "stages": more["stages"]},
    }


def fresh_home(folder: Path, store: Path) -> Path:
    home = folder / "home"
    home.mkdir(mode=0o700)
    shutil.copy(store, home / "service.duckdb")
    return home


def imported(home: Path, file: Path, **settings: str) -> Measured:
    found: Measured = json.loads(python(HERE / "import_one.py", home, file, **settings))
    found["created_now"] = found["counts"]["created"]
    return found


def took(found: Measured) -> float:
    return float(sum(stage["seconds"] for stage in found["stages"].values()))


def peak(*found: Measured) -> int:
    return max(int(each["peak_bytes"]) for each in found)


def bytes_of(path: Path) -> int:
    """Return the bytes of a folder, or of a file and the files that its database keeps beside it."""
    parts = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(part.stat().st_size for part in parts if part.is_file())


def check_counts(kind: str, records: int, first: Measured, again: Measured, more: Measured) -> None:
    wanted, created = (records, 0, 1), tuple(found["created_now"] for found in (first, again, more))
    if created != wanted or any(found["state"] != "finished" for found in (first, again, more)):
        sys.exit(f"{kind}: {created} created where {wanted} were to be")


def one_by_one(rows: Path, store: Path, folder: Path, latency: float) -> Measured:
    """Import tasks over the bare interface, one request a row, each `latency` seconds late. Return the figures."""
    home = fresh_home(folder, store)
    client = json.loads(
        python("-m", "fhir_service", "client", "add", "--store", home / "service.duckdb", "--name", "bench")
    )
    service: Measured = {}
    with serving(home, service, "--interface-only") as address, later(urlsplit(address).port or 0, latency) as port:
        found = imported(
            home,
            rows / "inbox" / "tasks.csv",
            FHIR_BASE_URL=f"http://127.0.0.1:{port}",
            FHIR_CLIENT_ID=client["client_id"],
            FHIR_CLIENT_SECRET=client["client_secret"],
        )
    shutil.rmtree(home)
    records, seconds = found["counts"]["records"], found["stages"]["load"]["seconds"]
    most = AT_ONCE / latency
    return {
        "records": records,
        "created": found["created_now"],
        "at_once": AT_ONCE,
        "latency_seconds": latency,
        "per_second": records / seconds,
        "most_per_second": most,
        "share": records / seconds / most,
    }


def made(folder: Path, patients: int, sizes: dict[str, int]) -> tuple[Path, Path]:
    """Return the files of rows, and a store with their reference data."""
    rows, store = folder / "rows", folder / "loaded.duckdb"
    python(HERE / "make_rows.py", rows, f"--patients={patients}", *(f"--{n}={size}" for n, size in sizes.items()))
    python("-m", "fhir_service", "load", "--store", store, rows / "reference")
    return rows, store


def measure(given: argparse.Namespace, folder: Path) -> Iterator[Measured]:
    for kind in given.only or ("payments", "tasks", "answers"):
        if size := getattr(given, KINDS[kind]):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                sizes = dict.fromkeys(SIZES, 0) | {KINDS[kind]: size}
                yield whole(kind, *made(Path(own), given.patients, sizes), Path(own))


# --- The report -----------------------------------------------------------------------------------


def bytes_a_record(name: str) -> Cell:
    return lambda m: f"{m['bytes_a_record'][name]:,.0f}"


COLUMNS: dict[str, Cell] = {
    "kind": lambda m: m["kind"],
    "resources": lambda m: f"{m['records']:,}",
    "per second": lambda m: f"{m['per_second']:,.0f}",
    "bare loop": lambda m: f"{m['bare_per_second']:,.0f}",
    "times slower": lambda m: f"{m['ratio']:.1f}",
    "last/first tenth": lambda m: f"{m['last_tenth_to_first']:.2f}" if m["last_tenth_to_first"] else "",
    "MB importer": lambda m: f"{m['peak_bytes']['importer'] / MEGABYTE:,.0f}",
    "MB service": lambda m: f"{m['peak_bytes']['service'] / MEGABYTE:,.0f}",
    "B store": bytes_a_record("service.duckdb"),
    "B audit": bytes_a_record("audit"),
    "B ledger": bytes_a_record("ledger.db"),
    "B batch": bytes_a_record("batches"),
    "again s": lambda m: f"{m['again']['seconds']:.0f}",
    "one more s": lambda m: f"{m['one_more']['seconds']:.0f}",
}
"""MB: peak memory. B: bytes on the disk for each resource."""

ONE_BY_ONE: dict[str, Cell] = {
    "interface only": lambda m: f"{m['records']:,} tasks",
    "late by ms": lambda m: f"{m['latency_seconds'] * 1000:.0f}",
    "at once": lambda m: str(m["at_once"]),
    "per second": lambda m: f"{m['per_second']:,.0f}",
    "at most": lambda m: f"{m['most_per_second']:,.0f}",
    "share": lambda m: f"{m['share']:.2f}",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures imports of a million rows, again, and over a slow line.")
    for name, default in {"patients": 10_000, **SIZES, "bare": 10_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    parser.add_argument(
        "--latency", type=float, default=50.0, metavar="MS", help="Milliseconds that requests are late."
    )
    parser.add_argument("--only", action="append", choices=KINDS, help="This kind; may be repeated.")
    parser.add_argument("--out", type=Path, default=HERE / "million.json", metavar="FILE")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    where = about(keep_to(CORES))
    measured: list[Measured] = []
    slow: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as name:
        folder = Path(name)
        for one in measure(given, folder):
            measured.append(one)
            print(f"{one['kind']}: {one['per_second']:,.0f} a second", file=sys.stderr, flush=True)
        if given.bare:
            sizes = dict.fromkeys(SIZES, 0) | {"tasks": given.bare}
            slow.append(one_by_one(*made(folder, 1_000, sizes), folder, given.latency / 1000))
    for results, columns in ((measured, COLUMNS), (slow, ONE_BY_ONE)):
        if results:
            print(table(results, columns))
    written = {"about": where, "measured": measured, "one_by_one": slow}
    given.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
