"""The partitions that a step is over, and the batches that they are."""

import dagster as dg

from pipelines.dagster.names import Names
from pipelines.dagster.workplace import place_of


def names_in(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Names:
    """Return the names of the home that a step works in."""
    return Names.of(place_of(context).environ)


def batches_in(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> list[str]:
    """Return the batches that a step is over."""
    names = names_in(context)
    return [names.batch(partition) for partition in context.partition_keys]
