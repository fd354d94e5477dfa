"""The end of a stage in Dagster: materializations, results of checks, and a failure where the run must end."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import dagster as dg

from pipelines.dagster.checks import Statement
from pipelines.dagster.stages.outcome import Outcome, failure
from pipelines.dagster.telling import Told, tell
from pipelines.dagster.workplace import batches_in, names_in, place_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.dagster_folder import TOLD_TAG


def specs_of(statements: Sequence[Statement[Any]], key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [statement.spec(key.path) for statement in statements]


def told_of_stage(context: dg.AssetExecutionContext, feed: Feed) -> Told | None:
    """Return what the ledger knows of this stage if the run only shows the command line, else None."""
    target = context.run.tags.get(TOLD_TAG)
    if target is None:
        return None
    place = place_of(context)
    return tell(place.home, place.environ, feed, target, batches_in(context), context.asset_key.path[-1])


def ended_with(
    context: dg.AssetExecutionContext,
    outcome: Outcome,
    statements: Sequence[Statement[Any]] = (),
    facts: Mapping[str, Any] | None = None,
    held: Mapping[str, str] = MappingProxyType({}),
    last: bool = False,
) -> Iterator[Any]:
    """Yield the materializations and the check results of a stage; raise a Failure where the run must end.

    It must end if no batch can go on or, in the last stage, if any failed. Otherwise the run continues with the batches
    that succeeded, and the last stage reports the others. held: why batches that succeeded do not go on.
    """
    ended, names = {**outcome.failed, **held}, names_in(context)
    failing = bool(ended) and (last or ended.keys() >= outcome.done.keys())
    if failing:
        for batch_id, about in outcome.done.items():
            yield dg.AssetMaterialization(context.asset_key, partition=names.partition(batch_id), metadata=about)
    else:
        for batch_id, about in outcome.done.items():
            context.add_asset_metadata(about, partition_key=names.partition(batch_id))
        for batch_id, sentence in outcome.failed.items():
            context.add_asset_metadata({"failed": sentence}, partition_key=names.partition(batch_id))
        yield dg.MaterializeResult()
    if facts or not failing:
        for statement in statements:
            yield statement.result(facts or {}, context.asset_key.path)
    if failing:
        raise failure(ended, outcome)
