"""The sensor of the inbox: files that have stopped growing become partitions. Files of one feed share a run, in order.

Waiting reference data is loaded first.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import dagster as dg

from pipelines.dagster import reference
from pipelines.dagster.inbox.files import files_in, has_inbox, is_quiet, mark_of, short_hash
from pipelines.dagster.inbox.look import (
    Hashes,
    InboxLook,
    LookContext,
    SeenFiles,
    from_cursor,
    look,
    to_cursor,
    warnings_of,
)
from pipelines.dagster.inbox.objects import Objects
from pipelines.dagster.names import DagsterNames, Job
from pipelines.dagster.requests import ask_for, batches_under_way, result_of, ticking
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.inbox import Inbox
from pipelines.session.bundled import is_bundled
from pipelines.session.ledger import ledger_of

SECONDS_BETWEEN_LOOKS = 9
"""Dagster checks what is due every 5 seconds and a little: this makes it every other time, 10 seconds apart."""
SECONDS_BEFORE_ANOTHER_LOAD = 900


def inbox_sensor(home: Path, environ: Mapping[str, str], catalog: Catalog, jobs: Sequence[Job]) -> dg.SensorDefinition:
    hashes, links, names = Hashes(), Inbox.of(home, environ), DagsterNames.of(environ)
    objects = Objects(home, environ)

    says = (
        f"Imports files from {home / 'inbox'} once they have stopped growing, and tries files that stay there again, "
        f"with growing pauses. If the target is the bundled service, loads new files of {home / reference.GROUP} first."
    )

    @ticking(names, home, "inbox", SECONDS_BETWEEN_LOOKS, says, jobs)
    def inbox(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        is_there = has_inbox(home, environ)
        before = from_cursor(context.cursor)
        waiting = reference.looks_new(home) if is_bundled(environ) else []
        if waiting:
            return _reference_first(names, waiting, before, int(time.time() // SECONDS_BEFORE_ANOTHER_LOAD))
        if not (is_there or links.beyond):
            return dg.SkipReason("There is no inbox yet.")
        now, beyond, found = datetime.now(UTC), objects.look(catalog), InboxLook()
        under_way = cache(lambda: batches_under_way(context.instance, names, catalog.feeds))
        is_empty = not is_there or next(files_in(home / "inbox"), None) is None
        if not is_empty:  # nothing is opened for an empty inbox
            with ledger_of(home, environ) as ledger:
                found = look(home / "inbox", before, LookContext(catalog, now, ledger, under_way, hashes, links))
        for sentence in (*beyond.said, *warnings_of(found)):
            context.log.warning(sentence)
        ready = [
            (feed, [*beyond.batches(feed.name, under_way), *found.ready.get(feed.name, {}).values()])
            for feed in catalog.feeds
        ]
        files = {**beyond.names, **found.names}
        asked = (ask_for(context.instance, names, *each, now.isoformat(), files) for each in ready)
        return result_of(asked, to_cursor(found), "The inbox is empty." if is_empty else _nothing(found))

    return inbox


def _reference_first(names: DagsterNames, waiting: Sequence[Path], before: SeenFiles, turn: int) -> dg.SensorResult:
    """Request the load of reference data once its files have stopped growing. Imports wait until it succeeds.

    turn: the number of the current quarter of an hour. It is part of the run key, so that a failed load runs again in
    the next one. A load after a successful one finds nothing to do.
    """
    looked, now = [(path, path.stat()) for path in waiting], datetime.now(UTC)
    marks = {mark_of(path, about) for path, about in looked}
    still = all(is_quiet(path, about, now) or mark_of(path, about) in before.still for path, about in looked)
    request = dg.RunRequest(f"{short_hash(sorted(marks))} {turn}", job_name=names.job(reference.JOB))
    return dg.SensorResult(
        run_requests=[request] if still else [],
        cursor=to_cursor(replace(before, still=before.still | marks)),
        skip_reason=None if still else f"Imports wait for reference data: {reference.named_files(waiting)}.",
    )


def _nothing(found: InboxLook) -> str:
    """Return why nothing is requested. Zero counts are left out, since they would hide the number that matters."""
    counts = {
        "may still grow": found.still,
        "in runs that were requested": found.asked,
        "that no feed takes, left where they are": found.left,
    }
    lying = "; ".join(f"{len(files):,} {what}" for what, files in counts.items() if files)
    return f"Nothing new. Files: {lying}." if lying else "Nothing new."
