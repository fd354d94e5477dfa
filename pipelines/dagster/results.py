"""The end of a stage in Dagster: materializations, results of checks, and a failure where the run must end."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg

from pipelines.dagster.checks import Statement
from pipelines.dagster.not_loaded import note_not_loaded
from pipelines.dagster.stages.outcome import Outcome, failure
from pipelines.dagster.telling import tell
from pipelines.dagster.workplace import Workplace, batches_in, names_in, workplace_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.dagster_folder import TOLD_TAG


def specs_of(statements: Sequence[Statement[Any]], key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [statement.spec(key.path) for statement in statements]


def ended(
    context: dg.AssetExecutionContext,
    feed: Feed,
    do: Callable[[Workplace], Outcome],
    statements: Sequence[Statement[Any]] = (),
    last: bool = False,
) -> Iterator[Any]:
    """Do a stage, or take what the ledger knows of it where the run only shows the command line, and yield its end.

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
    context: dg.AssetExecutionContext, outcome: Outcome, statements: Sequence[Statement[Any]], last: bool
) -> Iterator[Any]:
    """Yield the materializations and the check results of a stage; raise a Failure where the run must end.

    It must end if no batch can go on or, in the last stage, if any failed. Otherwise the run continues with the batches
    that succeeded, and the last stage reports the others.
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
