"""`make bench-peers`: the bundled service beside HAPI FHIR JPA, on one machine, in one run, with the same bodies.

Ours runs over DuckDB and over PostgreSQL, HAPI over PostgreSQL. All are filled alike and stay up, and one at a time is
busy: each row is measured in rounds, in which the servers take turns. Rows that read come before rows that write.
Prints a table in Markdown and writes `bench/peers.json`. docs/scaling.md says what is equal and what is not.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import httpx

from bench.peers import servers
from bench.peers.bodies import PEOPLE
from bench.peers.servers import Cluster, Server, Unable
from bench.peers.table import Line, cells, markdown
from bench.peers.work import GROUPS, WORKS, Sender, preload, searches
from bench.run import about, keep_to

RESULT = Path(__file__).resolve().parents[1] / "peers.json"
SYNCING = 0.3
"""Seconds for which the disk's rate is measured, before each round."""

WARMING = 8
"""The least number of clients that warm a server up before a row's first round: Java compiles code that runs often."""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.peers", description="Compares the bundled service with HAPI FHIR JPA.")
    parser.add_argument("--tasks", type=int, default=50_000, metavar="N", help="Tasks that each server holds at first.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="The median of so many rounds is told.")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="How long a round of a server takes.")
    parser.add_argument("--warm", type=float, default=5.0, metavar="S", help="Work of a server before its first round.")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="Cores that all of it shares.")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="Our processes over PostgreSQL.")
    parser.add_argument("--only", action="append", choices=GROUPS, help="These rows; may be repeated.")
    given = parser.parse_args(words)
    for name in ("rounds", "cores", "seconds", "workers"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name}: a number above zero is expected")
    if given.tasks <= 0 or given.tasks % PEOPLE:
        parser.error(f"--tasks: a multiple of {PEOPLE:,} is expected, as many for each patient")
    if given.warm < 0:
        parser.error("--warm: a number from zero on is expected")
    return given


def fsyncs(folder: Path) -> float:
    """Return how often a second one writer can store 8 KiB durably on the disk of a folder."""
    count, began = 0, time.perf_counter()
    with (folder / "fsync").open("wb", buffering=0) as file:
        while (taken := time.perf_counter() - began) < SYNCING:
            file.write(bytes(8192))
            os.fsync(file.fileno())
            count += 1
    return count / taken


def filled(one: Server, tasks: int) -> list[str]:
    """Fill a server with tasks; return their ids. Raises Unable if a search does not find all of them."""
    began = time.perf_counter()
    ids = preload(one, tasks)
    say(f"{one.name}: {tasks:,} tasks stored in {time.perf_counter() - began:.0f} s")
    found = httpx.get(f"{one.url}/Task?{searches(one.search)[0]}", headers=one.headers, trust_env=False, timeout=60)
    total = found.json().get("total")
    if total != tasks // PEOPLE:
        raise Unable(f"{one.name} found {total} tasks of a patient who has {tasks // PEOPLE}")
    return ids


def measure(given: argparse.Namespace, folder: Path, up: list[Server], database: Cluster) -> Iterator[Line]:
    """Measure the rows one after another. In each round of a row the servers take turns."""
    sender = Sender(folder, {one.name: filled(one, given.tasks) for one in up})
    database.tidy()
    chosen = [work for work in WORKS if not given.only or work.group in given.only]
    for place, work in enumerate(chosen):
        line, first = Line(work, {one.name: [] for one in up}, []), 1 + place * (given.rounds + 1)
        for one in up if given.warm else ():
            sender.measure(one, replace(work, clients=max(work.clients, WARMING)), given.warm, first)
        for number in range(first + 1, first + 1 + given.rounds):
            for one in up:
                database.settle()
                line.fsyncs.append(fsyncs(folder))
                line.rounds[one.name].append(sender.measure(one, work, given.seconds, number))
        say(" | ".join(cells(line, [one.name for one in up])))
        yield line


def compare(given: argparse.Namespace) -> None:
    where = about(keep_to(given.cores)) | {"HAPI": servers.version()}
    say("building HAPI's server ...")
    servers.build()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-")))
        database = stack.enter_context(servers.cluster())
        postgres = f"postgresql+psycopg://{servers.USER}:{database.password}@127.0.0.1:{database.port}/ours"
        up = [
            stack.enter_context(servers.ours("ours, DuckDB", str(folder / "service.duckdb"), folder / "duckdb")),
            stack.enter_context(servers.ours("ours, PostgreSQL", postgres, folder / "postgresql", given.workers)),
            stack.enter_context(servers.hapi("HAPI", database, folder / "hapi")),
        ]
        lines = list(measure(given, folder, up, database))
    print(markdown(lines, [one.name for one in up]))
    RESULT.write_text(json.dumps({"about": where, "lines": [asdict(line) for line in lines]}, indent=1) + "\n")
    say(f"written to {RESULT}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    given = arguments()
    if sentence := servers.missing():
        sys.exit(sentence)
    try:
        compare(given)
    except (Unable, httpx.HTTPError) as problem:
        sys.exit(f"The comparison ended: {problem}")
    except KeyboardInterrupt:
        sys.exit("The comparison was interrupted; what it had made is removed.")


if __name__ == "__main__":
    main()
