"""The stage `received` over the batches of a Dagster run: files of the inbox become batches."""

import logging
from collections.abc import Sequence
from pathlib import Path

from fhir_service.paths import exists, is_file, is_folder
from pipelines.dagster import metadata
from pipelines.dagster.run_resource import RunWorkplace
from pipelines.dagster.stages.outcome import NO_FILE, StageOutcome
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.reject_marks import marked_form
from pipelines.home import traces
from pipelines.home.batch import UnreadableFile, batch_name
from pipelines.home.files import sha256_of
from pipelines.home.inbox import BATCHES, Inbox
from pipelines.ledger.home_batches import HomeBatches
from pipelines.receiving.stage import receive


def receive_at(place: RunWorkplace, feed: Feed, batch_ids: Sequence[str], log: logging.Logger) -> StageOutcome:
    """Receive the files of a run, and start its traces, since no session at the target has started them yet."""
    traces.start(place.environ)
    return receive_all(feed, place.home, batch_ids, place.inbox, batches_of(place, log))


def receive_all(
    feed: Feed, home: Path, batch_ids: Sequence[str], inbox: Inbox | None = None, batches: HomeBatches | None = None
) -> StageOutcome:
    outcome, waiting = StageOutcome(), waiting_files(feed, home / "inbox", set(batch_ids))
    batches = batches or HomeBatches(home / "batches")
    for batch_id in batch_ids:
        try:
            path = waiting.get(batch_id)
            found = receive(path, feed, home, None, inbox, batches) if path else batches.received(batch_id)
        except UnreadableFile as error:
            if path and not exists(path) and (found := batches.received(batch_id)):
                outcome.done[batch_id] = metadata.of_received(found)  # another run took it just now
            else:
                outcome.fail(batch_id, str(error))
            continue
        if found is None:
            outcome.fail(batch_id, NO_FILE)
        elif found.batch_id != batch_id:
            outcome.fail(batch_id, f"{found.file_name} changed meanwhile; it is now the batch {found.batch_id}")
        else:
            outcome.done[batch_id] = metadata.of_received(found)
    return outcome


def batches_of(place: RunWorkplace, log: logging.Logger) -> HomeBatches:
    """Return the batches of a home. Batches in an object store need a session."""
    return (
        place.session(log).ledger.batches_in(place.home)
        if place.environ.get(BATCHES)
        else HomeBatches(place.home / "batches")
    )


def waiting_files(feed: Feed, inbox: Path, batch_ids: set[str]) -> dict[str, Path]:
    """Return the files of these batches in the inbox, by batch."""
    found: dict[str, Path] = {}
    for path in sorted(inbox.iterdir()) if is_folder(inbox) else ():
        if len(found) == len(batch_ids) or not is_file(path) or path.name.startswith("."):
            continue
        if feed.takes(path.name) or marked_form(path):
            try:
                batch_id = batch_id_of(feed, path)
            except OSError:
                continue
            if batch_id in batch_ids:
                found[batch_id] = path
    return found


def batch_id_of(feed: Feed, path: Path) -> str:
    """Return the id of the file's batch."""
    return batch_name(feed.name, sha256_of(path))
