"""Names that the parts of the orchestration share: a feed's partitions, assets and job; and how a step tries again."""

import re

import dagster as dg

from pipelines.feeds.files.catalog import Feed

AGAIN = dg.RetryPolicy(max_retries=2, delay=20, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


def batches_of(feed: Feed) -> dg.DynamicPartitionsDefinition:
    """The batches of a feed, in the order in which their files were found."""
    return dg.DynamicPartitionsDefinition(name=f"{feed.name} batches")


def keys_of(feed: Feed) -> dict[str, dg.AssetKey]:
    return {stage: dg.AssetKey([feed.name, stage]) for stage in ("received", "validated", "loaded")}


def plain(name: str) -> str:
    """A name of the kind that Dagster takes for groups and jobs."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def job_of(feed: Feed) -> str:
    """The name of the job that imports batches of the feed."""
    return f"import_{plain(feed.name)}"
