"""The time that a person waits for small things: an import with nothing new, a file of one row, `status`.

usage: waits.py [--turns N] [--only NAME] [CHECKOUT...]
Each checkout (default: this one) takes a turn after the other, over a home of its own. `.venv` of a checkout may be a
link to another's. Prints wall and processor seconds of all processes together, the best and the median.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]
HEADER = "payment_id,patient_id,amount,paid_on\n"
SAMPLES = "data/samples/reference"


class Checkout:
    """A version of the code, with a home that has imported the samples."""

    def __init__(self, code: Path, home: Path) -> None:
        self._code, self.home, self._rows = code, home, 0
        named = {name: value for name, value in os.environ.items() if not name.startswith(("FHIR_", "CHARTFERRY_"))}
        self._environ = named | {"PYTHONPATH": str(code)}

    def run(self, *command: object) -> float:
        """Run a command of the checkout to its end; return the wall seconds. Ends the benchmark if it fails."""
        began = time.perf_counter()
        done = subprocess.run(
            self._line(command), cwd=self._code, env=self._environ, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 3):
            sys.exit(f"{command} failed:\n{done.stderr}")
        return time.perf_counter() - began

    def _line(self, command: tuple[object, ...]) -> list[str]:
        name, *words = map(str, command)
        return [name if name == "make" else str(self._code / ".venv/bin" / name), *words]

    def import_samples(self) -> float:
        return self.run("make", "-s", "import", f"HOME_DIR={self.home}")

    def load(self) -> float:
        return self.run("fhir-service", "load", "--store", self.home / "service.duckdb", SAMPLES)

    def chartferry(self, *words: object) -> float:
        return self.run("chartferry", "--home", self.home, *words)

    def import_row(self) -> float:
        """Import a file of one new payment from the inbox."""
        self._rows += 1
        row = f"W-{self._rows},p001,1.00,2026-03-02\n"
        (self.home / "inbox").mkdir(exist_ok=True)
        (self.home / "inbox" / f"payments-{self._rows}.csv").write_text(HEADER + row, encoding="utf-8")
        return self.chartferry("import")

    def serve(self) -> float:
        """Return the seconds until the service listens. Its end counts for the processor alone."""
        began = time.perf_counter()
        words = ("fhir-service", "serve", "--store", self.home / "service.duckdb", "--port", 0, "--until-stdin-closes")
        with subprocess.Popen(
            self._line(words), cwd=self._code, env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as service:
            assert service.stdin is not None
            assert service.stdout is not None
            service.stdout.readline()
            seconds = time.perf_counter() - began
            service.stdin.close()
        return seconds


WAITS: dict[str, Callable[[Checkout], float]] = {
    "make import, nothing new": Checkout.import_samples,
    "import of one row": Checkout.import_row,
    "load, nothing new": Checkout.load,
    "service listens": Checkout.serve,
    "reports": lambda one: one.chartferry("reports"),
    "verify": lambda one: one.chartferry("verify"),
    "status": lambda one: one.chartferry("status"),
    "metrics": lambda one: one.chartferry("metrics"),
    "--help": lambda one: one.chartferry("--help"),
}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--only", action="append", help="the beginning of a wait's name")
    options.add_argument("checkouts", nargs="*", type=Path, default=[HERE])
    given = options.parse_args()
    names = [name for name in WAITS if name.startswith(tuple(given.only or [""]))]
    with tempfile.TemporaryDirectory() as folder:
        checkouts = [Checkout(code.resolve(), Path(folder, str(at))) for at, code in enumerate(given.checkouts)]
        for one in checkouts:
            one.import_samples()
        for name in names:
            told = defaultdict[Path, list[tuple[float, float]]](list)
            for _ in range(given.turns):
                for code, one in zip(given.checkouts, checkouts, strict=True):
                    before = _spent()
                    told[code].append((WAITS[name](one), _spent() - before))
            for code, found in told.items():
                walls, cpus = zip(*found, strict=True)
                said = "  ".join(f"{min(some):6.2f} {median(some):6.2f}" for some in (walls, cpus))
                print(f"{name:26} {said}  {code}", flush=True)


def _spent() -> float:
    """Return the processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(f"{'seconds: best and median':26} {'wall':>13}  {'processor':>13}")
    main()
