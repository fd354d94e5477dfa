"""A home with the samples' reference data, and Dagster's runs over it: for tests of the orchestration."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.events import DagsterEventType

from pipelines.commands.definitions import stamp_of
from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.reports import assets
from pipelines.dagster.reports.publication_metadata import TABLES_AGREE
from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.reports import tables
from pipelines.session.ledger import open_ledger
from tests.support.commands import environment, listening, load
from tests.support.starting import finish, shared

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dataclass
class Practice:
    """A home whose service holds the samples' reference data, with its environment and its own Dagster instance."""

    home: Path
    environ: dict[str, str]
    instance: dg.DagsterInstance
    cursors: dict[str, str | None] = field(default_factory=dict)

    def put(self, name: str, text: str | None = None) -> str:
        """Put a sample, or a file with this text, into the inbox as a partition. Return its batch."""
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
        return repository_of(self.environ)

    def run(
        self, job: str, *batch_ids: str, assets: list[dg.AssetKey] | None = None, **tags: str
    ) -> dg.ExecuteInProcessResult:
        """Run a job over these batches, with all of its assets or a selection."""
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
        """Evaluate a sensor with the cursor of its last evaluation. Add the partitions that it asks for."""
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
        """Carry out the run that a sensor requested."""
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
        """Run `chartferry` over this home in a separate process, without publishing."""
        return command("tests.support.unpublished", *arguments, environ=self.environ)


def repository_of(environ: Mapping[str, str]) -> dg.RepositoryDefinition:
    """Return the definitions of a home. They are made again if settings, feeds, views or tables have changed."""
    files = (stamp_of(Path(environ["CHARTFERRY_HOME"]), environ), _stamp(tables.sql_folder()))
    about = (dict(environ), files, vars(assets)["readable_tables"])  # a test may have replaced it
    if not _LAST or _LAST[0] != about:
        _LAST[:] = about, build_definitions(environ).get_repository_def()
    found: dg.RepositoryDefinition = _LAST[1]
    return found


_LAST: list[Any] = []
"""The definitions of the last call, and the files and settings that they were made from."""


def _stamp(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file())


def command(module: str, *arguments: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return finish([sys.executable, "-m", module, *arguments], env=environ)


def samples_store() -> Path:
    """Return a DuckDB store of the samples' reference data. `loaded.txt` beside it has the output of the load."""
    return shared("samples", _load_samples) / "service.duckdb"


def _load_samples(folder: Path) -> None:
    loaded = load(folder, SAMPLES / "reference")
    assert loaded.returncode == 3, loaded.stderr  # some of the samples are refused
    (folder / "loaded.txt").write_text(loaded.stdout, encoding="utf-8")


@contextmanager
def practicing(home: Path, served: bool = False) -> Iterator[Practice]:
    """Yield a practice. served: one service for all runs; otherwise each run starts its own."""
    environ = environment(CHARTFERRY_HOME=str(home))
    (home / "inbox").mkdir()
    shutil.copy(samples_store(), home / "service.duckdb")
    with dg.DagsterInstance.ephemeral() as instance, listening(home) if served else nullcontext():
        yield Practice(home, environ, instance)


def observed(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str], dict[str, object]]:
    """Return the metadata of the observations, by stage and batch."""
    events = [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    found = [event.asset_observation_data.asset_observation for event in events]
    return {
        (each.asset_key.path[-1], each.partition or ""): {name: value.value for name, value in each.metadata.items()}
        for each in found
    }


def materialized(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str | None], dict[str, object]]:
    """Return the metadata of the materializations, by stage and partition."""
    events = [event.materialization for event in result.all_events if event.is_step_materialization]
    return {
        (event.asset_key.path[-1], event.partition): {name: m.value for name, m in event.metadata.items()}
        for event in events
    }


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    """Return for each check whether it always passed, and its severity."""
    found: dict[str, tuple[bool, str]] = {}
    for event in result.all_events:
        if event.event_type == DagsterEventType.ASSET_CHECK_EVALUATION:
            data = event.asset_check_evaluation_data
            before = found.get(data.check_name, (True, ""))[0]
            found[data.check_name] = (before and data.passed, data.severity.value)
    return found


def standing(repository: dg.RepositoryDefinition, *names: str) -> dg.ExecuteInProcessResult:
    """Run the standing checks, or those with these names, as a person does on Dagster's pages."""
    of_file = {key for key in repository.asset_graph.asset_check_keys if key.asset_key == ONE_HOME.published}
    chosen = {key for key in of_file if (key.name in names if names else key.name != TABLES_AGREE)}
    job = repository.get_implicit_global_asset_job_def().get_subset(asset_check_selection=chosen)
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(instance=instance)


def failures(result: dg.ExecuteInProcessResult) -> str:
    return " ".join(str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure)
