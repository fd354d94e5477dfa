"""`make bench-faults`: the table of faults with many runs in each cell, several at once.

usage: faults.py [--runs N] [--at-once N] [--kept FILE]
Prints the table, names every run in which store, ledger and source do not agree, and writes `bench/faults.json`. A cell
shows the number of runs, then `wrong`, `by hand` (rows that a person decided) and `doubled` (second resources that the
network made and `verify` named), if there were any. Exit code 1 if a run is wrong. With `--kept FILE` the outcomes are
written there, and the command can be stopped and started again.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults import runs
from tests.faults.proxy import MOMENTS
from tests.faults.runs import BARE, CELLS, NO_CELLS, WITH_ADDITIONS, Cell, Outcome, place

HERE = Path(__file__).resolve().parent
RUNS_A_SERVICE = 56
"""The runs that share one service. More would take longer: `verify` reads the whole store after each run."""
SHOWN = ("wrong", "by hand", "doubled")


def parts(number: int) -> Iterator[tuple[bool, list[tuple[Cell, int]]]]:
    """Yield the runs for each kind of target, in parts that have a service each."""
    for bare in (False, True):
        cells = [cell for cell in CELLS if cell.bare == bare]
        some = [(cell, at) for at, cell in enumerate(cells * -(-number // len(CELLS)))]
        for start in range(0, len(some), RUNS_A_SERVICE):
            yield bare, some[start : start + RUNS_A_SERVICE]


def part(bare: bool, some: Sequence[tuple[Cell, int]]) -> list[Outcome]:
    """Run a part over one service, in a separate process. Return its outcomes."""
    runs.CHILDREN.set_forkserver_preload([runs.__name__])
    last = max(number for _, number in some)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, place(Path(folder) / "runs", bare, last + 1) as run:
        return [run(cell, number) for cell, number in some]


class Kept:
    """The outcomes of the parts that were run, one line each, in a file if one is named."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path and path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the last line may be cut off
        if path and whole != text:
            path.write_text(whole, encoding="utf-8")
        self.outcomes = [[_outcome(each) for each in json.loads(line)] for line in whole.splitlines()]

    def add(self, outcomes: list[Outcome]) -> None:
        self.outcomes.append(outcomes)
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([asdict(each) for each in outcomes]) + "\n")

    def left(self, number: int) -> list[tuple[bool, list[tuple[Cell, int]]]]:
        """Return the parts that have no outcome yet, for a number of runs in each cell."""
        there = {(each.cell, each.number) for outcomes in self.outcomes for each in outcomes}
        return [(bare, some) for bare, some in parts(number) if not there.issuperset(some)]


def _outcome(said: dict[str, Any]) -> Outcome:
    return Outcome(**{**said, "cell": Cell(*said["cell"])})


def count(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return the text of a cell."""
    found = list(outcomes)
    return {
        "runs": len(found),
        "wrong": sum(bool(outcome.wrong) for outcome in found),
        "by hand": sum(outcome.by_hand for outcome in found),
        "doubled": sum(outcome.doubled for outcome in found),
    }


def table(cells: dict[Cell, dict[str, int]]) -> Iterator[str]:
    """Yield the lines of the table: one per kind of target and operation, a column per moment of the fault."""
    columns = {moment: f"({letter}) {moment}" for letter, moment in zip("abcdefg", MOMENTS, strict=True)}
    yield from columns.values()
    yield f"{'target':<16}{'operation':<11}" + "".join(f"{name[:3]:<28}" for name in columns.values())
    for target in (WITH_ADDITIONS, BARE):
        for operation in dict.fromkeys(cell.operation for cell in CELLS):
            if why := NO_CELLS.get((target, operation)):
                yield f"{target:<16}{operation:<11}none: {why}"
                continue
            shown = [cells[Cell(target, operation, moment)] for moment in MOMENTS]
            texts = [", ".join([f"{s['runs']}", *(f"{s[n]} {n}" for n in SHOWN if s[n])]) for s in shown]
            yield f"{target:<16}{operation:<11}" + "".join(f"{text:<28}" for text in texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000, help="how many in all, at least")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--kept", type=Path, metavar="FILE", help="what was run, to go on from")
    options = parser.parse_args()
    began, kept = time.monotonic(), Kept(options.kept)
    with ProcessPoolExecutor(options.at_once) as pool:
        for done in as_completed([pool.submit(part, *each) for each in kept.left(options.runs)]):
            kept.add(done.result())
            print(f"\r{sum(map(len, kept.outcomes)):,} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    outcomes: dict[Cell, list[Outcome]] = defaultdict(list)
    for outcome in {(each.cell, each.number): each for each in chain.from_iterable(kept.outcomes)}.values():
        outcomes[outcome.cell].append(outcome)
    cells = {cell: count(outcomes[cell]) for cell in CELLS}
    wrong = [asdict(outcome) for some in outcomes.values() for outcome in some if outcome.wrong]
    print("\n".join(table(cells)))
    print("\n".join(f"{each['cell']} run {each['number']}: {each['wrong'][:3]}" for each in wrong))
    document = {
        "runs": sum(cell["runs"] for cell in cells.values()),
        "seconds": round(time.monotonic() - began),
        "cells": [{**cell._asdict(), **counts} for cell, counts in cells.items()],
        "wrong": wrong,
    }
    (HERE / "faults.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{document['runs']:,} runs in {document['seconds']:,} s, {len(wrong)} with something wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
