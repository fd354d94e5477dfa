"""Names of a feed's partitions, assets and job, and the retry policy of the steps."""

import dagster as dg

from pipelines.feeds.files.catalog import Feed, plain

AGAIN = dg.RetryPolicy(max_retries=2, delay=20, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


def batches_of(feed: Feed) -> dg.DynamicPartitionsDefinition:
    """Return the feed's partitions: its batches, in the order in which their files were found."""
    return dg.DynamicPartitionsDefinition(name=f"{feed.name} batches")


def keys_of(feed: Feed) -> dict[str, dg.AssetKey]:
    """Return the keys of the feed's three assets by stage: received, validated, loaded."""
    return {stage: dg.AssetKey([feed.name, stage]) for stage in ("received", "validated", "loaded")}


def job_of(feed: Feed) -> str:
    """Return the name of the job that imports batches of the feed."""
    return f"import_{plain(feed.name)}"
