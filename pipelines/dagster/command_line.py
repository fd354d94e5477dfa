"""The sensor that shows on Dagster's pages what the command line imported.

It finds runs in the ledger that Dagster did not make, and requests Dagster runs that only report them. The command line
knows nothing of this, so that Dagster can neither slow it down nor make it fail.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from sqlalchemy import select

from pipelines.dagster.cursors import understood
from pipelines.dagster.handover import is_signed
from pipelines.dagster.names import Names
from pipelines.dagster.requests import ask_for, result_of
from pipelines.dagster.stages.outcome import FINISHED, NOTHING_SENT
from pipelines.dagster.ticking import ticking
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.dagster_folder import TOLD_TAG
from pipelines.ledger import tables as t
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.session.opening import has_ledger, open_ledger

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS_BETWEEN_LOOKS = 60
RUNS_A_LOOK = 5_000
OVERLAP = timedelta(minutes=10)
"""How far back each look reads again: a run's end time is taken before its commit, which may come after a look."""

Ended = tuple[str, str, int]
"""A run that ended: target, batch, number of the run."""


def told_since(cursor: str | None) -> tuple[str, set[Ended]]:
    """Return the time from which to read the ledger, and the runs after it that were reported already."""
    nothing: tuple[str, set[Ended]] = ("", set())
    return understood(cursor, _told, nothing)


def _told(said: Any) -> tuple[str, set[Ended]]:
    return str(said["until"]), {(target, batch_id, int(run)) for target, batch_id, run in said["told"]}


def ended_runs(ledger: Ledger, since: str) -> list[tuple[str, Ended, str]]:
    """Return end time, run and feed of the runs that ended after `since`, in this order."""
    run, batch = t.run.c, t.batch.c
    same = (batch.target == run.target) & (batch.batch_id == run.batch_id)
    query = select(run.finished_at, run.target, run.batch_id, run.run, batch.feed).join(t.batch, same)
    query = query.where(run.finished_at > since, run.state.in_((FINISHED, *NOTHING_SENT)))
    with ledger.engine.connect() as connection:
        rows = connection.execute(query.order_by(run.finished_at, run.batch_id).limit(RUNS_A_LOOK)).all()
    return [(at, (target, batch_id, number), feed) for at, target, batch_id, number, feed in rows]


def telling_sensor(
    home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence["UnresolvedAssetJobDefinition"]
) -> dg.SensorDefinition:
    ours = Names.of(environ)
    says = "Shows what `chartferry` did outside Dagster: its batches as partitions, in runs that only tell."

    @ticking(ours, home, "command_line", SECONDS_BETWEEN_LOOKS, says, jobs)
    def command_line(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not has_ledger(home, environ):
            return dg.SkipReason("There is no ledger yet.")
        until, told = told_since(context.cursor)
        with closing(open_ledger(home, environ)) as ledger:
            ended = ended_runs(ledger, until)
            names = {row["batch_id"]: row["file_name"] for row in ledger.batches() if row["file_name"]} if ended else {}
            made = ledger.batches_in(home)
            new = [(each, feed) for _, each, feed in ended if each not in told and not is_signed(made, *each)]
        asked = []
        for feed in catalog.feeds:
            for target in sorted({each[0] for each, name in new if name == feed.name}):
                batches = [each[1] for each, name in new if (each[0], name) == (target, feed.name)]
                about = (f"told {ended[-1][0]}", names, {TOLD_TAG: target})
                asked.append(ask_for(context.instance, ours, feed, batches, *about))
        return result_of(asked, _cursor(until, ended), "The command line did nothing since.")

    return command_line


def _cursor(until: str, ended: Sequence[tuple[str, Ended, str]]) -> str:
    """Return a cursor `OVERLAP` before the last end that was seen, with the runs reported after it."""
    if not ended:
        return json.dumps({"until": until, "told": []})
    back = utc_text(datetime.fromisoformat(ended[-1][0]) - OVERLAP)
    # After a full look, continue where it ended: going back would read the same runs for ever.
    since = ended[-1][0] if len(ended) == RUNS_A_LOOK else max(until, back)
    return json.dumps({"until": since, "told": [each for at, each, _ in ended if at > since]})
