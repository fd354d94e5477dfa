"""The names of a home's assets, partitions, jobs and tags in Dagster, and the retry policy of the steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from pipelines.feeds.files.catalog import Feed, plain
from pipelines.home.dagster_folder import CLINIC, CLINIC_TAG, LOAD_POOL

Job = UnresolvedAssetJobDefinition
"""A job over assets, whose type Dagster does not export."""
BY_LAUNCHER_TAG = ".dagster/grpc_info"
"""Dagster's tag of runs that the default launcher started."""
WILL_RETRY_TAG, RETRIED_AS_TAG = "dagster/will_retry", "dagster/auto_retry_run_id"
"""Dagster's tags of failed runs that are retried."""
AGAIN = dg.RetryPolicy(max_retries=2, delay=20, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


@dataclass(frozen=True)
class DagsterNames:
    """The names of a home in Dagster.

    clinic: the prefix of the names if several homes share a Dagster, and the name of the code location. Empty for a
    home with a Dagster of its own.
    """

    clinic: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "DagsterNames":
        return cls(environ.get(CLINIC, ""))

    def key(self, *path: str) -> dg.AssetKey:
        return dg.AssetKey([self.clinic, *path] if self.clinic else list(path))

    @property
    def reference(self) -> dg.AssetKey:
        """Return the asset of the loaded reference data."""
        return self.key("reference", "loaded")

    @property
    def sweep(self) -> dg.AssetKey:
        """Return the asset of the target's reports."""
        return self.key("reports", "diagnostic_report_sweep")

    @property
    def published(self) -> dg.AssetKey:
        """Return the asset of the published file."""
        return self.key("reports", "published")

    def keys_of(self, feed: Feed) -> dict[str, dg.AssetKey]:
        """Return the keys of the feed's three assets by stage: received, validated, loaded."""
        return {stage: self.key(feed.name, stage) for stage in ("received", "validated", "loaded")}

    def batches_of(self, feed: Feed) -> dg.DynamicPartitionsDefinition:
        """Return the feed's partitions: its batches, in the order in which their files were found."""
        return dg.DynamicPartitionsDefinition(name=self.partition(f"{feed.name} batches"))

    def partition(self, batch_id: str) -> str:
        """Return the partition of a batch."""
        return f"{self.clinic}/{batch_id}" if self.clinic else batch_id

    def batch(self, partition: str) -> str:
        """Return the batch of a partition."""
        return partition.removeprefix(f"{self.clinic}/") if self.clinic else partition

    def job(self, name: str) -> str:
        """Return the name of a job, a sensor, a schedule or an op."""
        return f"{self.clinic}_{name}" if self.clinic else name

    def job_of(self, feed: Feed) -> str:
        """Return the name of the job that imports batches of the feed."""
        return self.job(f"import_{plain(feed.name)}")

    def job_over(self, name: str, assets: Any, says: str, **more: Any) -> Job:
        """Return a job with this name that makes assets."""
        return dg.define_asset_job(name, selection=assets, description=says, **{"tags": self.tags, **more})

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of every job, by which Dagster's queue gives each clinic its share."""
        return {CLINIC_TAG: self.clinic} if self.clinic else {}

    @property
    def load_pool(self) -> str:
        """Return the pool that allows one load of this home at a time."""
        return self.job(LOAD_POOL)

    @property
    def own_runs(self) -> dict[str, str]:
        """Return the tags by which Dagster finds the runs of this home, including those started by hand."""
        return runs_of(self.clinic) if self.clinic else {}


def runs_of(location: str) -> dict[str, str]:
    """Return the tags by which Dagster finds the runs of a code location."""
    return {".dagster/repository": f"__repository__@{location}"}


ONE_HOME = DagsterNames()
"""The names of a home with a Dagster of its own."""
