"""`python -m bench.workers`: the import of a file by one process, and by several workers that load its parts, in turns.

Importer and service share the cores of this machine, or a given number of them. The bundled service is over
DuckDB. Prints a table: rows a second of the load stage, and the CPU seconds of the importer with its workers.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.run import HERE, KINDS, Cell, Measured, keep_to, python, table, whole_import

COLUMNS: dict[str, Cell] = {
    "kind": lambda m: m["kind"],
    "workers": lambda m: f"{m['workers']}",
    "resources": lambda m: f"{m['records']:,}",
    "load s": lambda m: f"{m['stages']['load']['seconds']:.1f}",
    "loaded a second": lambda m: f"{m['records'] / m['stages']['load']['seconds']:,.0f}",
    "CPU s of it": lambda m: f"{m['stages']['load']['cpu']:.1f}",
    "CPU s service": lambda m: f"{m['cpu']['service']:.1f}",
}


def measure(given: argparse.Namespace, folder: Path) -> Iterator[Measured]:
    rows, store = folder / "rows", folder / "loaded.duckdb"
    python(HERE / "make_rows.py", rows, *(f"--{name}={getattr(given, name)}" for name in ("patients", *KINDS.values())))
    python("-m", "fhir_service", "load", "--store", store, rows / "reference")
    for number in range(given.rounds):
        for kind in (kind for kind, size in KINDS.items() if getattr(given, size)):
            for workers in sorted(given.workers, reverse=bool(number % 2)):
                found = whole_import(kind, rows, store, folder, CHARTFERRY_WORKERS=str(workers))
                yield found | {"kind": kind, "workers": workers}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures imports by one process and by several.")
    for name, default in (("patients", 1_000), ("tasks", 100_000), ("payments", 100_000), ("responses", 0)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--cores", type=int, default=2, metavar="N")
    given = parser.parse_args()
    keep_to(given.cores)
    measured = []
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as folder:
        for one in measure(given, Path(folder)):
            measured.append(one)
            print(COLUMNS["workers"](one), COLUMNS["loaded a second"](one), file=sys.stderr, flush=True)
    print(table(measured, COLUMNS))


if __name__ == "__main__":
    main()
