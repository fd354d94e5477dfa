"""The inbox beyond the home, as the sensor looks at it: runs are asked for, and each object is taken once."""

import json
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from pipelines.dagster import alerts
from pipelines.dagster.run_resource import RunWorkplace
from pipelines.dagster.stages.receiving import batches_of, receive_all
from pipelines.dagster.waiting import PATIENCE, waiting_now
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import builtin_feeds, load_feeds
from pipelines.home.dagster_folder import BATCH_TAG
from tests.support.exports import PAYMENTS

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")


def ticked(home: Path, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
    repository = build_definitions({**os.environ, "CHARTFERRY_HOME": str(home)}).get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=repository)
        result = repository.get_sensor_def("inbox")(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def test_the_sensor_requests_a_run_for_the_object_that_it_received(beyond, target, home):
    """SCALE-03: the run finds it in its batch."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("notes.txt", "x")
    result = ticked(home)
    assert isinstance(result, dg.SensorResult)
    [request] = result.run_requests or ()
    assert (request.job_name, request.tags["file"]) == ("import_payments", "payments-1.csv")
    feed = load_feeds().named("payments")
    assert feed
    assert request.partition_key
    with closing(RunWorkplace(home, os.environ)) as place:
        outcome = receive_all(feed, home, [request.partition_key], place.inbox, batches_of(place, None))  # type: ignore[arg-type]
    assert (outcome.failed, list(outcome.done)) == ({}, [request.partition_key])


def run_of(instance: dg.DagsterInstance, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    tags = {BATCH_TAG: request.tags[BATCH_TAG]}
    run = dg.DagsterRun(job_name="import_payments", run_id=str(uuid4()), tags=tags, status=status)
    instance.run_storage.add_run(run)


def test_an_object_counts_as_taken_once_its_run_has_begun_and_is_requested_again_otherwise(
    beyond, target, home, asked, monkeypatch
):
    """SCALE-03: a process that ends in between, or a run that ends before it begins, loses nothing."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")

    def process() -> Callable[[], list[dg.RunRequest]]:
        repository = build_definitions({**os.environ, "CHARTFERRY_HOME": str(home)}).get_repository_def()

        def tick() -> list[dg.RunRequest]:
            result = repository.get_sensor_def("inbox")(dg.build_sensor_context(instance, repository_def=repository))
            assert isinstance(result, dg.SensorResult)
            return list(result.run_requests or ())

        return tick

    with dg.DagsterInstance.ephemeral() as instance:
        killed, tick = process(), process()
        assert [each.tags["file"] for each in killed()] == ["payments-1.csv"]
        [request] = tick()
        assert (tick(), tick()) == ([], [])  # no run yet, and no other one asked for
        monkeypatch.setattr("pipelines.dagster.inbox.objects.SECONDS_BEFORE_ANOTHER_TRY", 0.0)
        monkeypatch.setattr("pipelines.dagster.inbox.objects.SECONDS_FOR_A_RUN", 0.0)
        tick = process()
        [request] = tick()
        run_of(instance, request, dg.DagsterRunStatus.FAILURE)
        [request] = tick()
        run_of(instance, request, dg.DagsterRunStatus.STARTED)
        assert tick() == []
        with monkeypatch.context() as patched:
            patched.setattr("pipelines.importing.objects.TakenIn.note", lambda *_: None)
            asked("import")
        assert tick() == []
        assert process()() == []
        beyond.put("payments-1.csv.control.json", text=json.dumps({"rows": 2}))
        assert len(tick()) == 1


def test_the_sensor_goes_on_where_the_inbox_beyond_is_out_of_reach(beyond, target, home, monkeypatch):
    """SCALE-03: with the files of the home."""
    monkeypatch.setattr("pipelines.dagster.inbox.files.QUIET", timedelta(0))
    beyond.bucket.wrong = 403
    if "://" not in beyond.place:
        Path(beyond.place).rmdir()
    (home / "inbox" / "payments-2.csv").write_text(PAYMENTS + "k2,p1,2.00,2026-03-01,\n")
    result = ticked(home)
    assert isinstance(result, dg.SensorResult)
    assert [each.tags["file"] for each in result.run_requests or ()] == ["payments-2.csv"]


def test_an_inbox_beyond_that_stays_out_of_reach_is_one_alert_and_holds_no_other_up(beyond, target, home):
    """SCALE-03: nobody would know that no file comes any more."""
    now = datetime.now(UTC)
    beyond.bucket.wrong = 403
    if "://" not in beyond.place:
        Path(beyond.place).rmdir()
    for _ in range(2):
        ticked(home)
    assert waiting_now(home, os.environ, builtin_feeds(), now) is None
    held = waiting_now(home, os.environ, builtin_feeds(), now + PATIENCE + timedelta(seconds=30))
    assert held
    assert held.sentence.startswith(f"Imports wait, because nothing can be taken in from {beyond.place} (")
    (home / "inbox" / "notes.txt").write_text("")
    much_later = now + timedelta(hours=2)
    events = [*alerts.of_waiting(held), *alerts.of_inbox(home, much_later, held)]
    assert [event.kind for event in events] == ["imports_wait", "file_not_received"]
    assert waiting_now(home, os.environ, builtin_feeds(), much_later) is None  # no look has failed since
    beyond.bucket.wrong = None
    if "://" not in beyond.place:
        Path(beyond.place).mkdir()
    ticked(home)
    assert waiting_now(home, os.environ, builtin_feeds(), now + PATIENCE + timedelta(seconds=30)) is None


@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
def test_an_object_that_is_not_given_out_is_named_and_the_others_are_taken(beyond, target, home, capfd):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    beyond.bucket.closed = {"in/box/payments-1.csv"}
    result = ticked(home)
    assert isinstance(result, dg.SensorResult)
    assert [each.tags["file"] for each in result.run_requests or ()] == ["payments-2.csv"]
    assert "payments-1.csv: cannot be fetched: it refuses these credentials (403); it is left" in capfd.readouterr().err
