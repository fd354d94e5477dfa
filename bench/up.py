"""The cost of an idle `chartferry up`, and how soon it acts.

`python -m bench.up` prints all measures as JSON, `python -m bench.up idle mended` two of them. Processor seconds are
those of all its processes together; memory is their proportional share (PSS).
"""

import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.support.commands import load
from tests.support.standing import Standing, processes_of, standing, until

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
FILES, ROWS, LARGE = 200, 10, 20_000
IDLE_SECONDS, SETTLING_SECONDS = 120, 30
STARTED = re.compile(r"Started process for run \(pid: (\d+)\)")
EVENTS = """query ($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    ... on MessageEvent { timestamp message } } } } }"""
HEADER = "payment_id,patient_id,amount,paid_on\n"


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve() / "home"
        load(home, SAMPLES / "reference")
        with standing(home) as up:
            until(lambda: (home / "published" / "report.html").exists() and up.nothing_under_way(), "a publication")
            for name in names or list(MEASURES):
                print(json.dumps({"measure": name, **MEASURES[name](up)}), flush=True)


def idle(up: Standing) -> dict[str, Any]:
    """Return the processor seconds a minute and the MiB of memory of all processes, and of each permanent one."""
    time.sleep(SETTLING_SECONDS)
    before = {pid: spent(pid) for pid in processes_of(up.home)}
    time.sleep(IDLE_SECONDS)
    after = {pid: spent(pid) for pid in processes_of(up.home)}
    memory = {pid: proportional(pid) for pid in after}
    a_minute = 60 / IDLE_SECONDS
    return {
        "processor_seconds_a_minute": round((sum(after.values()) - sum(before.values())) * a_minute, 2),
        "pss_mib": round(sum(memory.values())),
        "processes": {
            words(pid)[:60]: [round((after[pid] - before.get(pid, 0)) * a_minute, 2), round(memory[pid])]
            for pid in after
        },
    }


def mended(up: Standing) -> dict[str, Any]:
    """Return the seconds from the drop of one file to its load, and to each event of its run."""
    wanted, began = loaded(up) + 1, time.time()
    drop(up.home, "payments-mended.csv", [f"U-mended-{wanted},p001,1.00,2026-03-02"])
    seconds = seconds_until(lambda: loaded(up) >= wanted)
    return {"seconds": seconds, "events": events(up, next(iter(importing(up, "STARTED", "SUCCESS"))), began)}


def killed(up: Standing) -> dict[str, Any]:
    """Return the seconds from the kill of a run during its load to the start of the run that resumes it."""
    drop(up.home, "payments-large.csv", [f"K-{row},p{row % 150 + 1:03},1.00,2026-03-02" for row in range(LARGE)])
    first = until(lambda: next(iter(importing(up, "STARTED")), None), "the run")
    [pid] = until(lambda: STARTED.findall("\n".join(up.messages(first))), "its process")
    until(lambda: any("load" in said and "tart" in said for said in up.messages(first)), "the load")
    time.sleep(1)
    psutil.Process(int(pid)).send_signal(signal.SIGKILL)
    return {"seconds": seconds_until(lambda: set(importing(up, "STARTED")) - {first})}


def files(up: Standing) -> dict[str, Any]:
    """Return the seconds from the drop of many small files to the load of the last one."""
    until(up.nothing_under_way, "quiet")
    wanted = loaded(up) + FILES
    for number in range(FILES):
        drop(
            up.home,
            f"payments-{number:04}.csv",
            [f"U-{number}-{row},p{row + 1:03},1.00,2026-03-02" for row in range(ROWS)],
        )
    return {"files": FILES, "seconds": seconds_until(lambda: loaded(up) >= wanted)}


MEASURES: dict[str, Callable[[Standing], dict[str, Any]]] = {
    "idle": idle,
    "mended": mended,
    "killed": killed,
    "files": files,
}


def loaded(up: Standing) -> int:
    return sum(state == "materialized" for state in up.partitions("payments").values())


def importing(up: Standing, *states: str) -> list[str]:
    """Return the runs of imports in these states, newest first."""
    return [run["runId"] for run in up.runs() if run["status"] in states and run["jobName"] == "import_payments"]


def events(up: Standing, run: str, began: float) -> list[tuple[float, str]]:
    """Return the events of a run, each with the seconds since a moment."""
    found = up.ask(EVENTS, run=run)["logsForRun"]["events"]
    timed = [(float(each["timestamp"]) / 1000 - began, each["message"][:60]) for each in found if "timestamp" in each]
    return [(round(at, 1), said) for at, said in timed]


def seconds_until(done: Callable[[], Any]) -> float:
    began = time.monotonic()
    until(done, "the end")
    return round(time.monotonic() - began, 1)


def drop(home: Path, name: str, rows: list[str]) -> None:
    """Put a file into the inbox in one step."""
    part = home / "inbox" / f".{name}"
    part.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    part.rename(home / "inbox" / name)


def spent(pid: int) -> float:
    """Return the processor seconds of a process and of its children that have ended; 0 if it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def proportional(pid: int) -> float:
    """Return the proportional memory (PSS) of a process in MiB; 0 if it has ended."""
    try:
        return float(psutil.Process(pid).memory_full_info().pss / (1 << 20))
    except psutil.NoSuchProcess:
        return 0.0


def words(pid: int) -> str:
    """Return the command line of a process without the interpreter; an empty text if it has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline()[1:])
    except psutil.NoSuchProcess:
        return ""


if __name__ == "__main__":
    main(sys.argv[1:])
