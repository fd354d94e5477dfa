"""Three hosts without a shared disk import many rows, while steps of each kind are killed, or cut off and reconnected.

`python -m bench.hosts --payments 200000 --tasks 200000 --answers 20000 --times 5`, as root, on Linux. It prints
each fault, and at the end whether source, ledger and store agree to the row and the cent, and each lane kept its order.
Exit code 1 if not; the folder with its logs is then kept.
"""

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.many_exports import make_exports
from tests.faults.several_hosts import Figures
from tests.faults.sharing import run
from tests.support.hosts import CAN, LACKING
from tests.support.postgres import running_server

PATIENTS, FILES_A_FAULT = 1_000, 1.25
SMALLER = 5
"""There are fewer files of responses than of the other kinds."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Imports by three hosts, with kills and cuts.")
    for name, rows in (("payments", 20_000), ("tasks", 20_000), ("answers", 2_000)):
        parser.add_argument(f"--{name}", type=int, default=rows, metavar="ROWS")
    parser.add_argument("--times", type=int, default=1, help="of each fault at each step")
    parser.add_argument("--silence", type=float, default=60.0, help="seconds until a host is taken for dead")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def files(times: int) -> dict[str, int]:
    """Return the number of files of each kind: more than there are faults."""
    every = max(3, round(times * 8 * FILES_A_FAULT * SMALLER / (2 * SMALLER + 1)))
    return {"payments": every, "tasks": every, "answers": max(2, every // SMALLER)}


def show(figures: Figures, seconds: float, told: dict[str, object]) -> None:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{seconds:.0f} s; {used.ru_utime + used.ru_stime:.0f} CPU seconds of those who were waited for")
    print("faults:", {" at ".join(name): number for name, number in sorted(figures.faults.items())})
    print("imports by exit code:", {str(code): number for code, number in figures.codes.items()})
    print("verify:", json.dumps(told)[:500])
    print("\n".join(figures.wrong) or "source, ledger and store agree, and each lane kept its order")


def main() -> int:
    given = arguments()
    if not CAN:
        print(LACKING, file=sys.stderr)
        return 2
    rows = {name: getattr(given, name) for name in ("payments", "tasks", "answers")}
    exports = make_exports(rows, files(given.times), PATIENTS, random.Random(given.seed))
    folder, began = Path(tempfile.mkdtemp(prefix="hosts-")), time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s: {text}", flush=True)

    with running_server() as postgres:
        figures, told = run(folder, postgres, exports, PATIENTS, given.times, given.silence, say)
    show(figures, time.monotonic() - began, told)
    if figures.wrong:
        print(f"see {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
