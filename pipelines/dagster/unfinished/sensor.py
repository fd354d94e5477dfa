"""The sensor that runs unfinished batches again: after a killed run, an unreachable target, or with rows in doubt.

It tries each batch a limited number of times, with growing pauses. Progress of a batch resets its tries and pauses.
A batch that only a person can settle stays unfinished.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import inf
from pathlib import Path

import dagster as dg

from pipelines.client.pace import pace_of
from pipelines.dagster.names import Job, Names
from pipelines.dagster.requests import ask_for, batches_under_way, result_of
from pipelines.dagster.ticking import ticking
from pipelines.dagster.unfinished.left import anything_left, are_loaders_at_work, begins_ledger, left_batches
from pipelines.dagster.unfinished.tries import FIRST_PAUSE, LONGEST_PAUSE, TRIES, due, from_cursor, to_cursor
from pipelines.feeds.files.catalog import Catalog
from pipelines.ledger.addresses import known_as
from pipelines.ledger.lease import Silence
from pipelines.session.confirmed import confirmed_since
from pipelines.session.connections import target_now
from pipelines.session.ledger import ledger_of

SECONDS_BETWEEN_LOOKS = 60


def unfinished_sensor(
    home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence[Job]
) -> dg.SensorDefinition:
    ours, silence = Names.of(environ), Silence(most_between=inf)  # its looks are a minute and more apart
    pauses = f"{FIRST_PAUSE} to {LONGEST_PAUSE}"
    says = f"Asks again for batches that have no end, up to {TRIES} times with pauses of {pauses}."

    @ticking(ours, home, "unfinished", SECONDS_BETWEEN_LOOKS, says, jobs)
    def unfinished(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before = from_cursor(context.cursor)
        with ledger_of(home, environ) as ledger:
            if ledger is None:
                begun = begins_ledger(home, environ)
                return dg.SkipReason("The ledger is begun." if begun else "There is no ledger yet.")
            now = ledger.clock()
            if not anything_left(ledger, home, catalog):
                return dg.SensorResult(cursor="{}", skip_reason="Every batch has an end.")
            if are_loaders_at_work(ledger, silence):
                return dg.SkipReason("A loader is at work.")
            target = target_now(home, environ)
            if target is None:
                return dg.SkipReason("The target does not answer; the tries are not counted.")
            names = {feed.name for feed in catalog.feeds}
            here = known_as(ledger, target)
            confirmed = confirmed_since(ledger, catalog, here)
            left = [each for each in left_batches(ledger, home, here, confirmed) if each.feed in names]
        busy = batches_under_way(context.instance, ours, catalog.feeds)
        first = timedelta(seconds=pace_of(environ).settling_seconds)
        asked, after = due([each for each in left if each.batch_id not in busy], before, now, max(first, FIRST_PAUSE))
        kept = {name: each for name, each in before.items() if name in busy}
        files = {each.batch_id: each.file_name for each in asked if each.file_name}
        wanted = [(feed, [each.batch_id for each in asked if each.feed == feed.name]) for feed in catalog.feeds]
        return result_of(
            (ask_for(context.instance, ours, *each, f"again {now.isoformat()}", files) for each in wanted),
            to_cursor({**kept, **after}),
            f"Batches without an end: {len(left)}. None is due yet.",
        )

    return unfinished
