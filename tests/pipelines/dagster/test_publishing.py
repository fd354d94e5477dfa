"""When the sensor publishes the tables, over a Dagster whose runs consist of recorded events only."""

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData

from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.publishing import NAME
from pipelines.definitions import build_definitions
from tests.support.publishing import publish_only

REFERENCE, SWEEP, PUBLISHED = ONE_HOME.reference, ONE_HOME.sweep, ONE_HOME.published
LOADED, BATCH = dg.AssetKey(["payments", "loaded"]), "payments-1"


class Publishing:
    """The sensor, and the runs that it and others make."""

    def __init__(self, instance: dg.DagsterInstance, home: Path) -> None:
        self.repository = build_definitions({"CHARTFERRY_HOME": str(home)}).get_repository_def()
        self.instance, self.requested = instance, set[str | None]()
        self.cursor: str | None = None
        self.ahead = 0.0

    def look(self) -> str | None:
        """Return the job of the run that a look makes: Dagster ignores a run key that it has seen."""
        context = dg.build_sensor_context(self.instance, self.cursor, repository_def=self.repository, sensor_name=NAME)
        found = self.repository.get_sensor_def(NAME).evaluate_tick(context)
        self.cursor = found.cursor or self.cursor
        new = [request for request in found.run_requests or [] if request.run_key not in self.requested]
        self.requested |= {request.run_key for request in new}
        return new[0].job_name if new else None

    def begin(self, job: str) -> str:
        run_id = self.instance.create_run_for_job(self.repository.get_job(job)).run_id
        self._tell(run_id, DagsterEventType.RUN_START)
        return run_id

    def end(self, run_id: str, *keys: dg.AssetKey) -> None:
        """Let a run end with these assets made; without any it has failed."""
        for key in keys:
            made = dg.AssetMaterialization(key, partition=BATCH if key == LOADED else None)
            self._tell(run_id, DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(made))
        self._tell(run_id, DagsterEventType.RUN_SUCCESS if keys else DagsterEventType.RUN_FAILURE)

    def _tell(self, run_id: str, kind: DagsterEventType, data: StepMaterializationData | None = None) -> None:
        event = DagsterEvent(kind.value, "published", event_specific_data=data)
        self.instance.report_dagster_event(event, run_id, timestamp=time.time() + self.ahead)


@pytest.fixture
def publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publishing]:
    """A Dagster with few tables: of each it would note that a run is to make it."""
    publish_only(monkeypatch)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Publishing(instance, tmp_path)


def test_reports_are_swept_at_first_and_after_reference_data(publishing: Publishing) -> None:
    assert publishing.look() == "refresh_reports"
    run = publishing.begin("refresh_reports")
    assert publishing.look() is None
    publishing.end(run, SWEEP, PUBLISHED)
    assert publishing.look() is None
    publishing.end(publishing.begin("load_reference"), REFERENCE)
    assert publishing.look() == "refresh_reports"


def test_the_tables_are_published_once_when_imports_have_ended(publishing: Publishing) -> None:
    publishing.end(publishing.begin("refresh_reports"), SWEEP, PUBLISHED)
    first, second = publishing.begin("import_payments"), publishing.begin("import_payments")
    publishing.end(first, LOADED)
    assert publishing.look() is None
    publishing.end(second, LOADED)
    assert publishing.look() == "publish_tables"
    publishing.end(publishing.begin("publish_tables"), PUBLISHED)
    assert publishing.look() is None


def test_an_import_that_ends_beside_a_publication_or_soon_after_it_is_published(publishing: Publishing) -> None:
    sweep = publishing.begin("refresh_reports")
    publishing.end(publishing.begin("import_payments"), LOADED)
    publishing.end(sweep, SWEEP, PUBLISHED)
    assert publishing.look() == "publish_tables"
    publishing.end(publishing.begin("publish_tables"), PUBLISHED)
    publishing.end(publishing.begin("import_payments"), LOADED)
    assert publishing.look() == "publish_tables"


def test_an_import_after_a_publication_while_the_clock_was_ahead_is_published(publishing: Publishing) -> None:
    publishing.ahead = 86_400.0
    publishing.end(publishing.begin("refresh_reports"), SWEEP, PUBLISHED)
    publishing.ahead = 0.0
    publishing.end(publishing.begin("import_payments"), LOADED)
    assert publishing.look() == "publish_tables"
    publishing.end(publishing.begin("publish_tables"), PUBLISHED)
    assert publishing.look() == "publish_tables", "the time of the sweep is ahead: once more"
    publishing.end(publishing.begin("publish_tables"), PUBLISHED)
    assert publishing.look() is None
    publishing.end(publishing.begin("import_payments"), LOADED)
    assert publishing.look() == "publish_tables"


def test_an_import_that_fails_during_a_publication_is_published_afterwards(publishing: Publishing) -> None:
    loading = publishing.begin("import_payments")
    publishing.end(publishing.begin("refresh_reports"), SWEEP, PUBLISHED)
    assert publishing.look() is None
    publishing.end(loading)
    assert publishing.look() == "publish_tables"
    assert publishing.look() is None
    publishing.end(publishing.begin("publish_tables"), PUBLISHED)
    publishing.end(publishing.begin("load_reference"))
    assert publishing.look() is None


def test_an_import_that_failed_is_published_however_many_runs_of_others_ended_since(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.dagster.publishing.RUNS_A_PAGE", 2)
    publishing.end(publishing.begin("refresh_reports"), SWEEP, PUBLISHED)
    publishing.end(publishing.begin("import_payments"))
    for _ in range(5):
        publishing.end(publishing.begin("retention"))
    assert publishing.look() == "publish_tables"
    assert publishing.look() is None


def test_a_publication_that_failed_waits_for_the_schedule_or_for_news(publishing: Publishing) -> None:
    assert publishing.look() == "refresh_reports"
    publishing.end(publishing.begin("refresh_reports"))
    assert publishing.look() is None
    publishing.end(publishing.begin("import_payments"), LOADED)
    assert publishing.look() == "publish_tables"
    publishing.end(publishing.begin("publish_tables"))
    assert publishing.look() is None
    publishing.end(publishing.begin("import_payments"), LOADED)
    assert publishing.look() == "publish_tables"
