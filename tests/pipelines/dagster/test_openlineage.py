"""The events of an import that an OpenLineage server receives, here a listener."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.openlineage import URL, lineage_sensors
from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.dagster.tables import told_of
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.dagster_folder import BATCH_TAG, prepare_dagster_home
from pipelines.reports.publication import Publication
from pipelines.reports.tables import report_tables
from tests.support.serving import Answers, served

pytest.importorskip("openlineage.client", reason="the extra `lineage` is not installed")
ROWS = "payment_id,patient_id,amount,paid_on\nQzkeyZq,QzpatientZq,1234.56,2026-01-02\n"


@pytest.fixture
def heard() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that records every event, and the recorded events."""
    events: list[dict[str, Any]] = []

    class Listener(Answers):
        def do_POST(self) -> None:
            if self.path[1:4].isdecimal():
                self.answer(int(self.path[1:4]))
                return
            assert self.path == "/api/v1/lineage"
            events.append(json.loads(self.sent()))
            self.answer(201)

    with served(Listener) as url:
        yield url, events


@pytest.mark.filterwarnings("ignore")  # of the client
def test_an_openlineage_server_receives_runs_assets_checks_and_columns_but_no_value(
    tmp_path: Path, heard: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, events = heard
    monkeypatch.setenv(URL, url)
    home = tmp_path / "home"
    (home / "inbox").mkdir(parents=True)
    (home / "inbox" / "payments-1.csv").write_text(ROWS)
    environ = {"CHARTFERRY_HOME": str(home), URL: url}
    repository = build_definitions(environ).get_repository_def()
    table = next(table for table in report_tables() if table.name == "reject_by_rule")
    done = Publication(tmp_path / "reports.duckdb", tmp_path / "page", datetime.now(UTC), "urn:t", {table.name: 3})

    @dg.asset(
        key=["reports", table.name],
        check_specs=[dg.AssetCheckSpec("keys_and_references_hold", asset=["reports", table.name])],
    )
    def published() -> Iterator[dg.MaterializeResult[None]]:
        yield from told_of(ONE_HOME, report_tables(), done, {URL: "http://lineage"})

    monkeypatch.setenv("DAGSTER_HOME", str(prepare_dagster_home(home)))
    with dg.DagsterInstance.get() as instance:
        batch = waiting_batch(home)
        instance.add_dynamic_partitions("payments batches", [batch])
        job, received = repository.get_job("import_payments"), dg.AssetKey(["payments", "received"])
        done_in_process = job.execute_in_process(
            instance=instance, partition_key=batch, asset_selection=[received], tags={BATCH_TAG: batch}
        )
        assert done_in_process.success
        key = dg.AssetKey(["reports", table.name])
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(key, "keys_and_references_hold", True, {}))
        assert dg.materialize([published], instance=instance).success
        sensor = repository.get_sensor_def("openlineage")
        with dg.build_sensor_context(instance, repository_def=repository) as context:
            sensor.evaluate_tick(context)
    outputs = {each["name"]: each for event in events for each in event.get("outputs", [])}
    assert {event["eventType"] for event in events if "eventType" in event} >= {"START", "COMPLETE"}
    assert "import_payments" in {event["job"]["name"] for event in events if "job" in event}
    assert {"payments/received", f"reports/{table.name}"} <= set(outputs)
    facets = outputs[f"reports/{table.name}"]["facets"]
    assert [field["name"] for field in facets["schema"]["fields"]] == [column.name for column in table.columns]
    assert "rule_id" in facets["columnLineage"]["fields"]
    text = json.dumps(events)
    assert "keys_and_references_hold" in text
    assert [value for value in ("Qz", "1234.56") if value in text] == []


def waiting_batch(home: Path) -> str:
    """The batch of the one file in the inbox."""
    [path] = (home / "inbox").iterdir()
    feed = load_feeds().match(path.name)
    assert feed
    return batch_id_of(feed, path)


def test_without_a_server_there_is_no_sensor() -> None:
    assert lineage_sensors({}) == []


@dg.asset
def good() -> None:
    """Is made."""


@dg.asset
def bad() -> None:
    """Fails."""
    raise dg.Failure("not so")


@dg.asset(deps=[bad])
def behind_bad() -> None:
    """Is planned, and never begun."""


@pytest.mark.filterwarnings("ignore")  # of the client
def test_events_that_the_server_did_not_take_are_sent_again_at_the_next_look(
    tmp_path: Path, heard: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, events = heard
    monkeypatch.setenv("DAGSTER_HOME", str(prepare_dagster_home(tmp_path)))
    with dg.DagsterInstance.get() as instance:
        first = dg.materialize([good], instance=instance).run_id
        second = dg.materialize([bad, behind_bad], instance=instance, raise_on_error=False).run_id
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(dg.AssetKey("good"), "holds", True, {}))
        third = dg.materialize([good], instance=instance).run_id

        def look(to: str, cursor: str | None) -> str | None:
            monkeypatch.setenv(URL, to)
            [sensor] = lineage_sensors({URL: to})
            with dg.build_sensor_context(instance, cursor=cursor) as context:
                sensor.evaluate_tick(context)
                return context.cursor

        away = look("http://127.0.0.1:1", None)
        assert not away
        assert not look(f"{url}/401/", away)
        past = look(f"{url}/422/", away)  # would be refused again
        assert past
        assert not events
        cursor = look(url, away)
        assert past == cursor
        assert look(url, cursor) == cursor
        assert look(url, json.dumps({"last_storage_id": 0, "running_pipelines": {}})) == cursor  # of earlier versions
    told, again = events[: len(events) // 2], events[len(events) // 2 :]
    assert [about(each) for each in told] == [about(each) for each in again]
    of_runs = [about(each) for each in told if each.get("job", {}).get("name") == "__ephemeral_asset_job__"]
    assert [each[:2] for each in of_runs] == [
        ("START", first),
        ("COMPLETE", first),
        ("START", second),
        ("FAIL", second),
        ("START", third),
        ("COMPLETE", third),
    ]
    failed = [each["job"]["name"] for each in told if each.get("eventType") == "FAIL"]
    assert [name for name in failed if "behind_bad" in name]
    assert "__ephemeral_asset_job__.bad" in failed


def about(event: dict[str, Any]) -> tuple[str, str, str]:
    """What happened, in which run, to what."""
    return str(event.get("eventType")), event["run"]["runId"], event["job"]["name"]
