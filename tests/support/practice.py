"""A home with the samples' reference data, and what Dagster made of its imports: for tests of the orchestration."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
from dagster._core.events import DagsterEventType

from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.session.opening import open_ledger
from tests.support.commands import environment, listening
from tests.support.starting import finish

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dataclass
class Practice:
    """A home whose service holds the samples' reference data, its environment, and a Dagster instance of its own."""

    home: Path
    environ: dict[str, str]
    instance: dg.DagsterInstance
    cursors: dict[str, str | None] = field(default_factory=dict)

    def put(self, name: str, text: str | None = None) -> str:
        """Puts a sample, or a file of this text, into the inbox as a partition; gives its batch."""
        path = self.home / "inbox" / name
        if text is None:
            shutil.copy(SAMPLES / "inbox" / name, path)
        else:
            path.write_text(text)
        feed = load_feeds().match(name)
        assert feed
        batch_id = batch_id_of(feed, path)
        self.instance.add_dynamic_partitions(f"{feed.name} batches", [batch_id])
        return batch_id

    def repository(self) -> dg.RepositoryDefinition:
        return build_definitions(self.environ).get_repository_def()

    def run(
        self, job: str, *batch_ids: str, assets: list[dg.AssetKey] | None = None, **tags: str
    ) -> dg.ExecuteInProcessResult:
        """Runs a job over these batches; of its assets all, or only these."""
        if len(batch_ids) > 1:
            tags |= dict(zip(RANGE, (batch_ids[0], batch_ids[-1]), strict=True))
        return (
            self.repository()
            .get_job(job)
            .execute_in_process(
                instance=self.instance,
                partition_key=batch_ids[0] if len(batch_ids) == 1 else None,
                asset_selection=assets,
                tags=tags,
                raise_on_error=False,
            )
        )

    def tick(self, sensor: str) -> dg.SensorResult:
        """A look of a sensor, which goes on from its last one; the partitions that it asks for are added."""
        repository = self.repository()
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursors.get(sensor), repository_def=repository
        )
        result = repository.get_sensor_def(sensor)(context)
        assert isinstance(result, dg.SensorResult)
        for added in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(added.partitions_def_name, list(added.partition_keys))
        self.cursors[sensor] = result.cursor
        return result

    def do(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """The run that a sensor asked for."""
        return (
            self.repository()
            .get_job(request.job_name or "")
            .execute_in_process(
                instance=self.instance,
                partition_key=request.partition_key,
                tags=dict(request.tags),
                raise_on_error=False,
            )
        )

    def batch(self, batch_id: str) -> dict[str, object]:
        ledger = open_ledger(self.home, self.environ)
        try:
            [row] = [row for row in ledger.batches() if row["batch_id"] == batch_id]
            return row
        finally:
            ledger.close()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`chartferry` over this home, as a process."""
        return command("pipelines.cli", *arguments, environ=self.environ)


def command(module: str, *arguments: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return finish([sys.executable, "-m", module, *arguments], env=environ)


@contextmanager
def practicing(home: Path, served: bool = False) -> Iterator[Practice]:
    """A practice. served: over one service for all its runs, each of which starts one of its own otherwise."""
    environ = environment(CHARTFERRY_HOME=str(home))
    (home / "inbox").mkdir()
    store = str(home / "service.duckdb")
    command("fhir_service", "load", "--store", store, str(SAMPLES / "reference"), environ=environ)
    with dg.DagsterInstance.ephemeral() as instance, listening(home) if served else nullcontext():
        yield Practice(home, environ, instance)


def observed(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str], dict[str, object]]:
    """The metadata of the observations, by stage and batch."""
    events = [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    found = [event.asset_observation_data.asset_observation for event in events]
    return {
        (each.asset_key.path[-1], each.partition or ""): {name: value.value for name, value in each.metadata.items()}
        for each in found
    }


def materialized(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str | None], dict[str, object]]:
    """Metadata values by stage and partition."""
    events = [event.materialization for event in result.all_events if event.is_step_materialization]
    return {
        (event.asset_key.path[-1], event.partition): {name: m.value for name, m in event.metadata.items()}
        for event in events
    }


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    """Whether the checks that were made all passed, and how severe they are, by name."""
    found: dict[str, tuple[bool, str]] = {}
    for event in result.all_events:
        if event.event_type == DagsterEventType.ASSET_CHECK_EVALUATION:
            data = event.asset_check_evaluation_data
            before = found.get(data.check_name, (True, ""))[0]
            found[data.check_name] = (before and data.passed, data.severity.value)
    return found


def failures(result: dg.ExecuteInProcessResult) -> str:
    return " ".join(str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure)
