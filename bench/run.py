"""`make bench`: whole imports, from the CSV to the stored resources, beside the bare loop on the same rows in the same
run.

usage: run.py [--patients N] [--tasks N] [--payments N] [--responses N] [--rounds N] [--only KIND] [--also FILE]
For each kind, in a new home: the bundled service in one process, the import in another, on two cores. Prints a table
and writes `bench/results.json`. Publishing is left out; bodies and rules are as in any import.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = ("duckdb", "httpx", "pandas", "pyarrow", "pydantic", "sqlalchemy", "starlette", "uvicorn")
KINDS = {"tasks": "tasks", "payments": "payments", "answers": "responses"}
"""For each kind of rows, the option that sets its number."""
STAGES = ("receive", "validate", "load")
CORES = 2
MEGABYTE = 1 << 20

Measured = dict[str, Any]


# --- Processes --------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment without any target or home of the user's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FHIR_", "CHARTFERRY_"))}


def keep_to(cores: int) -> int:
    """Bind this process and those that it starts to a number of cores, if the system can. Return the number in use."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or cores
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


def python(*arguments: object, **settings: str) -> str:
    """Run a Python program with these variables; return what it prints. Ends the benchmark if it fails."""
    command, env = [sys.executable, *map(str, arguments)], environment() | settings
    done = subprocess.run(command, cwd=HERE.parent, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[1:4])} failed:\n{done.stderr}")
    return done.stdout


@contextmanager
def serving(home: Path, used: Measured, *options: str) -> Iterator[str]:
    """Run the bundled service over a home; yield its address. At its end, put its memory and its CPU seconds since it
    was ready into `used`.
    """
    command = [sys.executable, "-m", "fhir_service", "serve", "--store", str(home / "service.duckdb"), "--port", "0"]
    command += options
    with (
        (home / "service.log").open("w") as log,
        subprocess.Popen(
            command, cwd=HERE.parent, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        ) as service,
    ):
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]
        before = cpu_of(service.pid)
        try:
            yield address
        finally:
            service.terminate()
            _, status, spent = os.wait4(service.pid, 0)
            service.returncode = os.waitstatus_to_exitcode(status)
    used["cpu"] = spent.ru_utime + spent.ru_stime - before
    used["peak_bytes"] = spent.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 if the system has no /proc: then its start is counted, too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- Measuring ---------------------------------------------------------------------------------------


def whole_import(
    kind: str, rows: Path, store: Path, folder: Path, profile: Path | None = None, **settings: str
) -> Measured:
    """Run one import into a new home. Return its figures, and those of the service."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    shutil.copy(store, home / "service.duckdb")
    service: Measured = {}
    with serving(home, service):
        options = ["--profile", profile] if profile else []
        found = json.loads(python(HERE / "import_one.py", home, rows / "inbox" / f"{kind}.csv", *options, **settings))
    shutil.rmtree(home)
    counts = found["counts"]
    if found["state"] != "finished" or counts["created"] != counts["records"]:
        sys.exit(f"{kind}: {counts['created']} of {counts['records']} records created, the batch is {found['state']}")
    seconds = sum(stage["seconds"] for stage in found["stages"].values())
    return {
        "records": counts["records"],
        "seconds": seconds,
        "per_second": counts["records"] / seconds,
        "stages": found["stages"],
        "cpu": {"importer": sum(stage["cpu"] for stage in found["stages"].values()), "service": service["cpu"]},
        "peak_bytes": {"importer": found["peak_bytes"], "service": service["peak_bytes"]},
    }


def bare_loop(program: Path, kind: str, rows: Path) -> Measured:
    found: Measured = json.loads(python(program, kind, rows / "inbox" / f"{kind}.csv"))
    return found


def cpu_a_record(measured: Measured) -> float:
    """Return the CPU seconds of both processes for a record. On a shared machine they say more than the clock."""
    return float(sum(measured["cpu"].values()) / measured["records"])


def measure(given: argparse.Namespace, folder: Path) -> Iterator[Measured]:
    """Measure the bare loop and the import in each round, for each kind."""
    rows = folder / "rows"
    sizes = [f"--{name}={getattr(given, name)}" for name in ("patients", *KINDS.values())]
    python(HERE / "make_rows.py", rows, *sizes)
    store = folder / "loaded.duckdb"
    python("-m", "fhir_service", "load", "--store", store, rows / "reference")
    for kind in given.only or KINDS:
        if not getattr(given, KINDS[kind]):
            continue
        for number in range(given.rounds):
            bare = bare_loop(HERE / "bare_loop.py", kind, rows)
            whole = whole_import(kind, rows, store, folder, given.profile)
            found = {"kind": kind, "round": number + 1, "ratio": bare["per_second"] / whole["per_second"]}
            found["cpu_ratio"] = cpu_a_record(whole) / cpu_a_record(bare)
            also = {"also": bare_loop(given.also, kind, rows)} if given.also else {}
            yield found | {"whole": whole, "bare": bare} | also


# --- The report -----------------------------------------------------------------------------------

Cell = Callable[[Measured], str]


def seconds_of(stage: str) -> Cell:
    return lambda m: f"{m['whole']['stages'][stage]['seconds']:.1f}"


COLUMNS: dict[str, Cell] = {
    "kind": lambda m: m["kind"],
    "resources": lambda m: f"{m['whole']['records']:,}",
    "per second": lambda m: f"{m['whole']['per_second']:,.0f}",
    "bare loop": lambda m: f"{m['bare']['per_second']:,.0f}",
    "times slower": lambda m: f"{m['ratio']:.1f}",
    **{f"{stage} s": seconds_of(stage) for stage in STAGES},
    "CPU s importer": lambda m: f"{m['whole']['cpu']['importer']:.1f}",
    "CPU s service": lambda m: f"{m['whole']['cpu']['service']:.1f}",
    "times the CPU": lambda m: f"{m['cpu_ratio']:.1f}",
    "MB importer": lambda m: f"{m['whole']['peak_bytes']['importer'] / MEGABYTE:,.0f}",
    "MB service": lambda m: f"{m['whole']['peak_bytes']['service'] / MEGABYTE:,.0f}",
}
ALSO: dict[str, Cell] = {"also": lambda m: f"{m['also']['per_second']:,.0f}"}


def table(measured: Sequence[Measured], columns: dict[str, Cell]) -> str:
    """Return the results as lines of aligned columns."""
    lines = [list(columns), *([cell(one) for cell in columns.values()] for one in measured)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(line))
        for line in (list(zip(cells, widths, strict=True)) for cells in lines)
    )


def about(cores: int) -> Measured:
    """Return where and when it was measured. load: the system's load averages at the start, if it has them."""
    from importlib.metadata import version

    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "packages": {name: version(name) for name in PACKAGES},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures imports beside a bare loop on the same rows.")
    for name, default in (("patients", 1_000), ("tasks", 100_000), ("payments", 100_000), ("responses", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="How often each kind is measured.")
    parser.add_argument("--only", action="append", choices=KINDS, help="This kind; may be repeated.")
    parser.add_argument("--also", type=Path, metavar="FILE", help="Another bare loop to run beside ours.")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="Profile the importer's stages; slows them.")
    parser.add_argument("--out", type=Path, default=HERE / "results.json", metavar="FILE")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    where = about(keep_to(CORES))
    measured = []
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as folder:
        for one in measure(given, Path(folder)):
            measured.append(one)
            print(f"{one['kind']}: {one['whole']['per_second']:,.0f} a second", file=sys.stderr, flush=True)
    print(table(measured, COLUMNS | (ALSO if given.also else {})))
    given.out.write_text(json.dumps({"about": where, "measured": measured}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
