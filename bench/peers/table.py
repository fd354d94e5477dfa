"""The results as a table in Markdown. The first servers are ours; the last is the peer that they are compared with."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.work import Measured, Work, told_wrong


@dataclass(frozen=True)
class Line:
    """A row of the table: the rounds of each server, and the syncs a second of the disk before them."""

    work: Work
    rounds: dict[str, list[Measured]]
    fsyncs: list[float]


def median(rounds: Sequence[Measured]) -> float:
    return statistics.median(one.rate for one in rounds)


def wrong(rounds: Sequence[Measured]) -> Counter[str]:
    return sum((one.wrong for one in rounds), Counter[str]())


def markdown(lines: Sequence[Line], servers: Sequence[str]) -> str:
    *own, peer = servers
    heads = ["Work, a second", "clients", *servers, *(f"{name} / {peer}" for name in own), "fsyncs a second"]
    rows = [heads, ["---", *("---:" for _ in heads[1:])], *(cells(line, servers) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(line: Line, servers: Sequence[str]) -> list[str]:
    """The row of one line: work, clients, rates, ratios, the disk."""
    *own, peer = servers
    rates = [rate(line.rounds[name]) for name in servers]
    ratios = [ratio(line.rounds[name], line.rounds[peer]) for name in own]
    return [line.work.what, str(line.work.clients), *rates, *ratios, f"{statistics.median(line.fsyncs):,.0f}"]


def rate(rounds: Sequence[Measured]) -> str:
    """Return the median rate of the rounds, with the number of unexpected answers."""
    errors = wrong(rounds)
    return f"{median(rounds):,.0f}" + (f" (errors: {told_wrong(errors)})" if errors else "")


def ratio(own: Sequence[Measured], peer: Sequence[Measured]) -> str:
    """Return the rate as a multiple of the peer's. A rate with unexpected answers is not compared."""
    if wrong(own) or wrong(peer) or not median(peer):
        return "-"
    times = median(own) / median(peer)
    return f"{times:.2f}" if times < 2 else f"{times:.1f}"
