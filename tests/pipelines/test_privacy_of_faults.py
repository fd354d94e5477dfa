"""Faults of ours in the middle of a stage, at a target that loses answers, tell no value of a row.

By the command and by Dagster: the markers and the places of patient data are those of `test_privacy`.
"""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import dagster as dg
import duckdb
import pytest
from dagster._utils.error import serializable_error_info_from_exc_info
from sqlalchemy.exc import IntegrityError

from pipelines.cli import run as chartferry
from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.dagster_folder import prepare_dagster_home
from pipelines.session.ledger import open_ledger
from tests.support.crossing import every_second
from tests.support.fake_target import FakeTarget
from tests.support.privacy import TASKS, leaks, mark
from tests.support.publishing import publish_only

CRASHES: dict[str, tuple[str, Callable[[str], Exception]]] = {
    "receive": ("pipelines.runs.batch.receive", OSError),
    "validate": ("pipelines.runs.received.validate", ValueError),
    "validate, deeper": ("pipelines.ledger.ledger.Ledger.reject", KeyError),
    "load": ("pipelines.runs.loading.load", RuntimeError),
    "load, deeper": (
        "pipelines.ledger.ledger.Ledger.settle",
        lambda text: IntegrityError(text, {"key": text}, ValueError(text)),
    ),
    "publish": ("pipelines.reports.publish.page_of", duckdb.ConversionException),
}
"""Where a fault of ours strikes, and the exception, whose text holds a value of a row."""


def strike(patch: pytest.MonkeyPatch, where: str) -> None:
    place, make = CRASHES[where]

    def struck(*_: object, **__: object) -> None:
        raise make(f"could not convert {mark('crash')}") from ValueError(mark("cause"))

    patch.setattr(place, struck)


ROWS = (
    f"{TASKS}\n"
    f"t1,p1,{mark('text')},requested,d1,d1,2026-05-01,{mark('label')},{mark('comment')},d1,2026-01-01T00:00:00Z\n"
    f"t2,p1,{mark('text')},{mark('shifted')},d1,,,,,,\n"
    f"t3,p1,{mark('refused')},requested,d1,,,,,,\n"
    f"t4,p1,{mark('doubtful')},requested,d1,,,,,,\n"
)


def lay_snares(home: Path, target: FakeTarget) -> None:
    """A file with a good, a rejected, a refused and a doubtful row, and one that cannot be read."""
    (home / "inbox" / "tasks-1.csv").write_text(ROWS, encoding="utf-8")
    (home / "inbox" / "tasks-2.csv.gz").write_bytes(f"no gzip {mark('nogzip')}".encode())
    target.additions = False
    target.faults = ["", "", "lost_after"]
    target.refuse = lambda body: mark("refused") in str(body)


@pytest.mark.parametrize("where", [pytest.param("nowhere", marks=pytest.mark.long), *every_second(CRASHES)])
def test_a_failing_command_shows_no_value_of_a_row(
    where: str, home: Path, target: FakeTarget, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """REPORT-25: one line with the class and the place of a fault, whatever its text holds."""
    lay_snares(home, target)
    with pytest.MonkeyPatch.context() as patch:
        if where != "nowhere":
            strike(patch, where)
        code = chartferry(["--home", str(home), "import"])
    assert code
    failed = sorted(map(str, home.glob("batches/*/source/*"))) if where == "validate" else []
    chartferry(["--home", str(home), "import", *failed])
    chartferry(["--home", str(home), "doubts"])
    assert target.stored, "the rows did travel"
    assert leaks(home, *capfd.readouterr()) == {}


@pytest.mark.parametrize(
    "where",
    [pytest.param(each, marks=() if each == "load, deeper" else pytest.mark.long) for each in CRASHES],
)
def test_a_failing_run_of_dagster_shows_no_value_of_a_row(
    where: str, home: Path, target: FakeTarget, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """REPORT-25: neither in its event log nor in its output."""
    lay_snares(home, target)
    if "deeper" in where:  # what strikes is no publication
        publish_only(monkeypatch, "import_row", "reject_reason", "payment", "task")
    monkeypatch.setenv("DAGSTER_HOME", str(prepare_dagster_home(home)))
    environ = {**os.environ, "CHARTFERRY_HOME": str(home)}
    repository = build_definitions(environ).get_repository_def()
    feed = next(feed for feed in load_feeds().feeds if feed.name == "tasks")
    with dg.DagsterInstance.from_config(os.environ["DAGSTER_HOME"]) as instance, pytest.MonkeyPatch.context() as patch:

        def import_files() -> None:
            for file in sorted((home / "inbox").glob("*.*")):
                batch = batch_id_of(feed, file)
                instance.add_dynamic_partitions("tasks batches", [batch])
                job = repository.get_job("import_tasks")
                job.execute_in_process(instance=instance, partition_key=batch, raise_on_error=False)

        import_files()
        stored = len(target.stored)
        assert stored, "the rows did travel"
        strike(patch, where)
        (home / "inbox" / "tasks-3.csv").write_text(ROWS.replace("\nt", "\nagain-t"), encoding="utf-8")
        import_files()
        # Dagster takes files in by a step of its own, which a fault of the command's does not strike.
        assert (len(target.stored) > stored) == (where in ("receive", "load, deeper", "publish"))
        done = repository.get_job("refresh_reports").execute_in_process(instance=instance, raise_on_error=False)
        assert done.success == (where != "publish")
        assert instance.get_run_records()
    assert list((home / "dagster").rglob("*.db"))
    assert leaks(home, *capfd.readouterr()) == {}


LOOKS = {
    "inbox": "pipelines.dagster.inbox.look.feed_of",
    "unfinished": "pipelines.dagster.unfinished.left_batches",
    "command_line": "pipelines.dagster.command_line.ended_runs",
    "publish_after_imports": "pipelines.dagster.publishing.news",
    "standing_check_after_imports": "pipelines.dagster.standing.sensor.verdicts_now",
    "alerts": "pipelines.dagster.alerts.of_runs",
}
"""What a fault of ours strikes in a look of each sensor."""


@pytest.mark.parametrize("sensor", LOOKS)
def test_a_failing_sensor_shows_no_value_of_a_row(
    sensor: str, home: Path, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-25: Dagster keeps the errors of looks, with their causes."""
    with closing(open_ledger(home, os.environ)):
        (home / "inbox" / "tasks-1.csv").write_text(ROWS, encoding="utf-8")
    os.utime(home / "inbox" / "tasks-1.csv", (0, 0))
    monkeypatch.setattr("pipelines.dagster.inbox.look.is_quiet", lambda *_: True)
    environ = {**os.environ, "CHARTFERRY_HOME": str(home), "CHARTFERRY_ALERT_COMMAND": "true"}
    repository = build_definitions(environ).get_repository_def()

    def struck(*_: object, **__: object) -> None:
        raise ValueError(f"could not convert {mark('crash')}") from KeyError(mark("cause"))

    monkeypatch.setattr(LOOKS[sensor], struck)
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, repository_def=repository)
        with pytest.raises(dg.Failure) as failed:
            repository.get_sensor_def(sensor)(context)
    kept = serializable_error_info_from_exc_info((failed.type, failed.value, failed.tb))
    assert "a fault of this program: ValueError at " in str(kept)
    assert "Qz" not in str(kept)
