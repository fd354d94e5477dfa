"""Memory and CPU seconds of reading an export, by its format and by how many rows it has.

usage: formats.py [--rows N]... [--only FORMAT]...
The same payments are written in each format. A separate process, without helpers, reads, maps and checks each file; it
also runs the query of a SQL feed. Memory is bounded if it does not grow with the number of rows.
"""

import argparse
import json
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

MEGABYTE = 1 << 20
NAMES = ("payment_id", "patient_id", "amount", "paid_on", "memo")
WIDTHS = (10, 8, 10, 12, 40)
Rows = Iterator[tuple[str, str, float, str, str]]


def payments(number: int) -> Rows:
    """Yield payments of a few patients, each with a short note."""
    for at in range(number):
        yield (
            f"k{at:08}",
            f"p{at % 997}",
            round(at % 40_000 / 100 + 1, 2),
            f"2026-{at % 12 + 1:02}-{at % 28 + 1:02}",
            f"desk {at % 7}",
        )


# --- Files ------------------------------------------------------------------------------------------


def csv(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.write(",".join(NAMES) + "\n")
        out.writelines(f"{','.join(map(str, row))}\n" for row in rows)


def ndjson(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows)


def array(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8") as out:
        for at, row in enumerate(rows):
            out.write(("," if at else "[") + json.dumps(dict(zip(NAMES, row, strict=True)), indent=1))
        out.write("]\n")


def fixed(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write("".join(str(cell).ljust(width) for cell, width in zip(row, WIDTHS, strict=True)) + "\n")


def parquet(path: Path, rows: Rows) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(zip(NAMES, zip(*rows, strict=True), strict=True))), path, row_group_size=50_000)


def workbook(path: Path, rows: Rows) -> None:
    from tests.support.workbooks import Cell, sheet, workbook

    cells: list[Sequence[Cell]] = [NAMES, *rows]
    path.write_bytes(workbook({"Payments": sheet(cells)}))


def database(path: Path, rows: Rows) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"create table payments ({', '.join(NAMES)})")
        made.executemany(f"insert into payments values ({', '.join('?' * len(NAMES))})", rows)
        made.commit()


FORMATS: dict[str, tuple[str, Callable[[Path, Rows], None], str]] = {
    "csv": ("csv", csv, ""),
    "ndjson": ("ndjson", ndjson, ""),
    "json": ("json", array, ""),
    "fixed": ("txt", fixed, "[fields]\n"),
    "parquet": ("parquet", parquet, ""),
    "xlsx": ("xlsx", workbook, ""),
    "sql": ("db", database, '[query]\ndatabase = "TILL_URL"\nsql = "select * from payments"\n'),
}
"""For each format: the suffix of its files, the function that writes one, and additional keys of the feed file."""


def feed_text(form: str, more: str) -> str:
    columns = "".join(f'{name} = "{name}"\n' for name in NAMES[:4])
    if form == "fixed":
        at = 1
        for name, width in zip(NAMES, WIDTHS, strict=True):
            more += f"{name} = [{at}, {at + width - 1}]\n"
            at += width
    files = "" if form == "sql" else 'files = ["till*"]\n'
    return f'name = "till"\nkind = "payments"\n{files}format = "{form}"\n{more}[columns]\n{columns}'


# --- Measuring ---------------------------------------------------------------------------------------


def read(form: str, path: Path) -> None:
    """Read one file to its end. Print seconds and memory as JSON."""
    from fhir_service.interface.site import Site
    from pipelines.feeds.files.catalog import load_feed
    from pipelines.feeds.reading.query import run_query
    from pipelines.home.batch import ReceivedFile
    from pipelines.session.questionnaires import Snapshot
    from pipelines.validation.stage import validate

    began = time.process_time()
    feed = load_feed(path.parent / "till.toml", environ={"TILL_URL": f"sqlite:///{path}"})
    now, file = datetime.now(UTC), path
    if form == "sql":
        file = path.with_suffix(".rows")
        run_query(feed, file, None, now)
    received = ReceivedFile("b", "0" * 64, file, file.name, file.stat().st_size, now)
    found = validate(received, feed, Snapshot(), Site(), path.parent / "run", processes=1)
    said = {"accepted": found.accepted, "cpu": time.process_time() - began, "peak_bytes": most_memory()}
    print(json.dumps(said))


def most_memory() -> int:
    """Return the peak memory in bytes. Linux's `ru_maxrss` would count the memory of the parent process at the fork."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"), re.MULTILINE)
    return int(kilobytes) << 10


def measured(form: str, rows: int) -> str:
    ending, write, more = FORMATS[form]
    with tempfile.TemporaryDirectory(prefix="chartferry-formats-") as folder:
        path = Path(folder) / f"till.{ending}"
        write(path, payments(rows))
        (path.parent / "till.toml").write_text(feed_text(form, more), encoding="utf-8")
        command = [sys.executable, "-m", "bench.formats", "--read", form, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        said = json.loads(done.stdout)
        if said["accepted"] != rows:
            sys.exit(f"{form}: {said['accepted']:,} of {rows:,} rows were accepted")
        size = path.stat().st_size / MEGABYTE
        peak = said["peak_bytes"] / MEGABYTE
        return f"{form:8} {rows:8,} rows  {size:6.1f} MB file  {peak:6,.0f} MB memory  {said['cpu']:6.1f} CPU s"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures how exports of each format are read.")
    parser.add_argument("--rows", type=int, action="append", metavar="N", help="Default: 50,000 and 200,000.")
    parser.add_argument("--only", action="append", choices=FORMATS, help="This format; may be repeated.")
    parser.add_argument("--read", nargs=2, metavar=("FORMAT", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read(given.read[0], Path(given.read[1]))
        return
    for form in given.only or FORMATS:
        for rows in given.rows or (50_000, 200_000):
            print(measured(form, rows), flush=True)


if __name__ == "__main__":
    main()
