"""The sensor that shows on Dagster's pages what the command line imported.

It finds runs in the ledger that Dagster did not make, or that a Dagster with lost storage made, and requests Dagster
runs that only report them. The command line knows nothing of this, so Dagster can neither slow it down nor make it
fail.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import dagster as dg

from pipelines.dagster.handover import is_signed
from pipelines.dagster.names import DagsterNames, Job
from pipelines.dagster.recent_events import (
    Back,
    Ended,
    clock_was_right_at,
    ended_runs,
    settled_batches,
    taken_back_since,
    tell_taken_back,
)
from pipelines.dagster.requests import ask_for, kept, result_of, ticking, understood
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.dagster_folder import TOLD_TAG
from pipelines.ledger.lease import utc_text
from pipelines.session.ledger import ledger_of

SECONDS_BETWEEN_LOOKS = 60
RUNS_A_LOOK = 5_000
OVERLAP = timedelta(minutes=10)
"""The span that each look reads again. A run's end time is taken before its commit, which may come after a look."""


@dataclass(frozen=True)
class SensorMemory:
    """The sensor's memory.

    * until: the time from which to read the ledger.
    * told: runs after that time that were reported.
    * settled: settled batches of the last look, each with its newest run.
    * back: the numbers taken back at the last look; None if none were noted.
    """

    until: str = ""
    told: frozenset[Ended] = frozenset()
    settled: frozenset[Ended] = frozenset()
    back: Back | None = None


def telling_sensor(
    home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence[Job]
) -> dg.SensorDefinition:
    ours = DagsterNames.of(environ)
    says = "Shows what `chartferry` did outside Dagster: its batches as partitions, in runs that import nothing."

    @ticking(ours, home, "command_line", SECONDS_BETWEEN_LOOKS, says, jobs)
    def command_line(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        last_look = understood(context.cursor, SensorMemory, SensorMemory())
        with ledger_of(home, environ) as ledger:
            if ledger is None:
                return dg.SkipReason("There is no ledger yet.")
            now = utc_text(ledger.clock())
            until = last_look.until if last_look.until <= now else clock_was_right_at(ledger)
            ended, settled = ended_runs(ledger, until, RUNS_A_LOOK), settled_batches(ledger)
            made, here = ledger.batches_in(home), cache(lambda: _shown_here(context.instance, ours, catalog))
            news = [
                (at, each, feed)
                for at, each, feed in ended
                if each not in last_look.told and not (is_signed(made, *each) and each[1] in here())
            ]
            news += [(at, each, feed) for at, each, feed in settled if each not in last_look.settled]
            new = [(each, feed) for _, each, feed in news]
            last = max((f"{at} {run}" for at, (_, _, run), _ in news), default="")
            names = {row["batch_id"]: row["file_name"] for row in ledger.batches() if row["file_name"]} if new else {}
            back = taken_back_since(ledger, last_look.back, ledger.clock())
            told_anew = {f"{target} {batch_id}" for (target, batch_id, _), _ in new}
            seen = {**(last_look.back or {}), **{each: number for each, number in back.items() if each in told_anew}}
            events = list(tell_taken_back(ledger, ours, catalog, seen, back))
        asked = []
        for feed in catalog.feeds:
            for target in sorted({each[0] for each, name in new if name == feed.name}):
                batches = [each[1] for each, name in new if (each[0], name) == (target, feed.name)]
                about = (f"told {last}", names, {TOLD_TAG: target})
                asked.append(ask_for(context.instance, ours, feed, batches, *about))
        seen_now = SensorMemory(*_seen(until, ended, now), frozenset(each for _, each, _ in settled), back)
        return result_of(asked, kept(seen_now), "The command line has done nothing new.", events)

    return command_line


def _shown_here(instance: dg.DagsterInstance, names: DagsterNames, catalog: Catalog) -> set[str]:
    """Return the batches that this Dagster knows. A Dagster whose storage is lost may have made more."""
    known = (instance.get_dynamic_partitions(names.batches_of(feed).name or "") for feed in catalog.feeds)
    return {names.batch(partition) for some in known for partition in some}


def _seen(until: str, ended: Sequence[tuple[str, Ended, str]], now: str) -> tuple[str, frozenset[Ended]]:
    """Return a time `OVERLAP` before the last end that was seen, and the runs reported after it.

    now: later ends were written while the clock was ahead, and do not count, since other runs will end before them.
    """
    last = max((at for at, _, _ in ended if at <= now), default=None)
    if last is not None:
        overlap = utc_text(datetime.fromisoformat(last) - OVERLAP)
        # After a full look, continue at its end: going back would read the same runs for ever.
        until = last if len(ended) == RUNS_A_LOOK else max(until, overlap)
    return until, frozenset(each for at, each, _ in ended if at > until)
