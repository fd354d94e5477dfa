"""The end of a stage in Dagster: materializations, results of checks, and a failure if the run must end.

A step that fails leaves its partition and those of the later stages without metadata. An operator looks there first, so
an observation shows the name of each file that was not loaded, and the reason.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from pipelines.dagster.checks import CheckStatement
from pipelines.dagster.command_line_runs import tell
from pipelines.dagster.run_resource import RunWorkplace, batches_in, names_in, workplace_of
from pipelines.dagster.stages.outcome import StageOutcome, failure
from pipelines.dagster.stages.receiving import batches_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import ReceivedFile
from pipelines.home.dagster_folder import TOLD_TAG
from pipelines.home.exits import ExplainedError

NOT_LOADED = "not_loaded"


def specs_of(statements: Sequence[CheckStatement[Any]], key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [statement.spec(key.path) for statement in statements]


def carry_out_stage(
    context: dg.AssetExecutionContext,
    feed: Feed,
    do: Callable[[RunWorkplace], StageOutcome],
    statements: Sequence[CheckStatement[Any]] = (),
    last: bool = False,
) -> Iterator[Any]:
    """Carry out a stage and yield its end. A run that only reports the command line takes the end from the ledger.

    do: carries the stage out.
    """
    with workplace_of(context) as place:
        target = context.run.tags.get(TOLD_TAG)
        if target is None:
            outcome = do(place)
        else:
            stage = context.asset_key.path[-1]
            outcome = tell(place.home, place.environ, feed, target, batches_in(context), stage)
        note_not_loaded(context, place, feed, outcome.ended)
        yield from _ended_with(context, outcome, statements, last)


def _ended_with(
    context: dg.AssetExecutionContext, outcome: StageOutcome, statements: Sequence[CheckStatement[Any]], last: bool
) -> Iterator[Any]:
    """Yield the materializations and the check results of a stage; raise a Failure if the run must end.

    It must end if no batch can continue or, in the last stage, if any batch failed. Otherwise the run continues with
    the batches that succeeded, and the last stage reports the others.
    """
    names = names_in(context)
    failing = bool(outcome.ended) and (last or outcome.ended.keys() >= outcome.done.keys())
    if failing:
        for batch_id, about in outcome.done.items():
            yield dg.AssetMaterialization(context.asset_key, partition=names.partition(batch_id), metadata=about)
    else:
        for batch_id, about in outcome.done.items():
            context.add_asset_metadata(about, partition_key=names.partition(batch_id))
        for batch_id, sentence in outcome.failed.items():
            context.add_asset_metadata({"failed": sentence}, partition_key=names.partition(batch_id))
        yield dg.MaterializeResult()
    if outcome.facts or not failing:
        for statement in statements:
            yield statement.result(outcome.facts, context.asset_key.path)
    if failing:
        raise failure(outcome)


# -- files that were not loaded


def note_not_loaded(
    context: dg.AssetExecutionContext, place: RunWorkplace, feed: Feed, reasons: Mapping[str, str]
) -> None:
    """Put name and reason of each batch into the run's log, and on its partitions: of this stage, and of `loaded`.

    A reason that an earlier stage of the run, or an earlier try of this stage, has noted is not repeated.
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
    """Return the partitions of an asset that have notes of this run, each with the reason."""
    found: set[tuple[str | None, str]] = set()
    for event in context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION):
        about = event.get_dagster_event().asset_observation_data.asset_observation
        if about.asset_key == key and NOT_LOADED in about.metadata:
            file_name = about.metadata["file"].value if "file" in about.metadata else None
            found.add((about.partition, _reason(str(about.metadata[NOT_LOADED].value), file_name)))
    return found


def _reason(sentence: str, file_name: object) -> str:
    """Return the sentence without the file's name before it, which not every stage adds."""
    return sentence.removeprefix(f"{file_name}: ")


def file_of(batch_id: str, place: RunWorkplace, log: logging.Logger) -> ReceivedFile | None:
    """Return the file of a batch; None if it cannot be found out at the moment: then the batch is named instead."""
    try:
        return batches_of(place, log).received(batch_id)
    except ExplainedError:
        return None
