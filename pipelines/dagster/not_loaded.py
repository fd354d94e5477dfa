"""Notes on files that were not loaded: name and reason, on the partition's page where an operator looks first.

A step that fails leaves its partition and those of the later stages without metadata. An observation is shown there.
"""

import logging
from collections.abc import Mapping

import dagster as dg

from pipelines.dagster.stages.receiving import batches_of
from pipelines.dagster.workplace import Workplace, names_in
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Received
from pipelines.home.exits import Explained

NOT_LOADED = "not_loaded"


def note_not_loaded(
    context: dg.AssetExecutionContext, place: Workplace, feed: Feed, reasons: Mapping[str, str]
) -> None:
    """Put name and reason of each batch into the run's log, and on its partitions: of this stage, and of `loaded`.

    What an earlier stage of the run has told of a batch, or an earlier try of this one, is not told twice.
    """
    names = names_in(context)
    told = _told_before(context, names.keys_of(feed)["loaded"]) if reasons else set()
    for batch_id, sentence in reasons.items():
        partition, received = names.partition(batch_id), file_of(batch_id, place, context.log)
        if (partition, _reason(sentence, received.file_name if received else None)) in told:
            continue
        named = {"file": received.file_name} if received else {}
        context.log.error("%s: %s", received.file_name if received else batch_id, sentence)
        about = {**named, NOT_LOADED: sentence}
        for key in {context.asset_key, names.keys_of(feed)["loaded"]}:
            context.log_event(dg.AssetObservation(key, partition=partition, metadata=about))


def _told_before(context: dg.AssetExecutionContext, key: dg.AssetKey) -> set[tuple[str | None, str]]:
    """Return the partitions of an asset that this run has notes of, each with the reason."""
    found: set[tuple[str | None, str]] = set()
    for event in context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION):
        about = event.get_dagster_event().asset_observation_data.asset_observation
        if about.asset_key == key and NOT_LOADED in about.metadata:
            file_name = about.metadata["file"].value if "file" in about.metadata else None
            found.add((about.partition, _reason(str(about.metadata[NOT_LOADED].value), file_name)))
    return found


def _reason(sentence: str, file_name: object) -> str:
    """The sentence without the file's name before it, which not every stage says."""
    return sentence.removeprefix(f"{file_name}: ")


def file_of(batch_id: str, place: Workplace, log: logging.Logger) -> Received | None:
    """Return the file of a batch; None where that cannot be asked for just now: its batch is named then."""
    try:
        return batches_of(place, log).received(batch_id)
    except Explained:
        return None
