"""Batches without an end are asked for again by themselves: at their target, with growing pauses, not for ever."""

import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import inf
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import update

from pipelines.dagster import unfinished
from pipelines.dagster.requests import kept, understood
from pipelines.dagster.unfinished import (
    TRIES,
    BatchTries,
    UnfinishedBatch,
    are_loaders_at_work,
    due,
    left_batches,
    pause,
    somebody_loads,
)
from pipelines.dagster.waiting import waiting_now
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feed
from pipelines.home.dagster_folder import BATCH_TAG, FILE_TAG
from pipelines.ledger import tables as t
from pipelines.ledger.lease import Silence, utc_text
from pipelines.ledger.ledger import Ledger
from tests.support.exports import PAYMENTS, feed_file

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
FIRST = timedelta(minutes=5)


def again(tries: dict[str, BatchTries]) -> dict[str, BatchTries]:
    """The tries as the sensor reads them at its next look."""
    return understood(kept(tries), dict[str, BatchTries], {})


def received(home: Path, name: str) -> None:
    folder = home / "batches" / name
    (folder / "source").mkdir(parents=True)
    (folder / "sha256").write_text("0" * 64)
    (folder / "source" / "payments.csv").write_text("payment_id\n")
    os.utime(folder / "sha256", (0, 0))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a batch left running at `here`, one at `there`, one that is done, and one that was only received."""
    home = tmp_path / "home"
    home.mkdir()
    with closing(Ledger.open(home / "ledger.db", lambda: NOW - timedelta(days=1))) as ledger:
        for target, name, state in (
            ("here", "payments-left", "running"),
            ("there", "payments-else", "running"),
            ("here", "payments-done", "finished"),
        ):
            received(home, name)
            ledger.start_batch(target, name, feed="payments", file_name="payments.csv")
            ledger.start_run(target, name)
            ledger.finish_batch(target, name, state)
    received(home, "payments-forgotten")
    return home


def test_only_batches_that_are_unfinished_at_this_target_are_found(home: Path) -> None:
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        found = [each.batch_id for each in left_batches(ledger, home, "here")]
    assert found == ["payments-forgotten", "payments-left"]


def test_pauses_grow_begin_anew_with_progress_and_come_to_an_end() -> None:
    left, now, at = UnfinishedBatch("b", "payments", "planned=3", NOW), NOW, []
    tries: dict[str, BatchTries] = {}
    while now < NOW + timedelta(days=10):
        asked, tries = due([left], again(tries), now, FIRST)
        at += [now] if asked else []
        now += timedelta(minutes=1)
    assert len(at) == TRIES
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert gaps == sorted(gaps)
    assert (at[0] - NOW, gaps[0], gaps[-1]) == (FIRST, FIRST * 3, timedelta(hours=12))
    moved = UnfinishedBatch("b", "payments", "created=1,planned=2", now)
    _, tries = due([moved], tries, now, FIRST)
    assert tries["b"] == BatchTries("created=1,planned=2", 0, now + FIRST)


def test_a_finished_batch_loses_its_tries_and_the_first_pause_is_at_least_the_settling_time() -> None:
    _, after = due([], {"b": BatchTries("", 3, NOW)}, NOW, FIRST)
    assert after == {}
    assert pause(0, timedelta(minutes=15)) == timedelta(minutes=15)


@pytest.mark.parametrize("tries", [{}, {"b": BatchTries("received", 2, NOW + timedelta(days=4))}], ids=["new", "tried"])
def test_a_batch_left_while_the_clock_was_ahead_is_retried_after_its_usual_pause(tries: dict[str, BatchTries]) -> None:
    """LEDGER-26: not only when the clock shows that time again."""
    left, now = UnfinishedBatch("b", "payments", "received", NOW + timedelta(days=4)), NOW
    wait = pause(tries["b"].tries if tries else 0, FIRST)
    while not (found := due([left], tries, now, FIRST))[0]:
        tries, now = again(found[1]), now + timedelta(minutes=1)
        assert now - NOW <= wait
    assert now - NOW == wait


def test_the_sensor_asks_for_batches_that_no_run_and_no_loader_works_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "target_now", lambda *_: "here")
    repository = build_definitions({"CHARTFERRY_HOME": str(home)}).get_repository_def()
    sensor = repository.get_sensor_def("unfinished")
    with dg.DagsterInstance.ephemeral() as instance:

        def tick(cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
            result = sensor(dg.build_sensor_context(instance, cursor=cursor, repository_def=repository))
            assert isinstance(result, dg.SensorResult | dg.SkipReason)
            return result

        result = tick()
        assert isinstance(result, dg.SensorResult)
        [request] = result.run_requests or []
        assert request.job_name == "import_payments"
        assert request.tags[BATCH_TAG].split() == ["payments-forgotten", "payments-left"]
        assert request.tags[FILE_TAG] == "payments.csv, payments.csv"
        again = tick(result.cursor)
        assert isinstance(again, dg.SensorResult)
        assert not again.run_requests
        instance.add_dynamic_partitions("payments batches", ["payments-left"])
        job = repository.get_job("import_payments")
        instance.create_run_for_job(
            job,
            tags={BATCH_TAG: "payments-left", "dagster/partition": "payments-left"},
            status=dg.DagsterRunStatus.STARTED,
        )
        busy = tick()
        assert isinstance(busy, dg.SensorResult)
        assert [request.partition_key for request in busy.run_requests or ()] == ["payments-forgotten"]
        with closing(Ledger.open(home / "ledger.db")) as ledger, ledger.lease("here"):
            assert isinstance(tick(), dg.SkipReason)
        monkeypatch.setattr(unfinished, "target_now", lambda *_: None)
        assert isinstance(tick(), dg.SkipReason)


def test_only_rows_in_doubt_wait_for_the_settling_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "target_now", lambda *_: "here")
    repository = build_definitions({"CHARTFERRY_HOME": str(home)}).get_repository_def()
    with closing(Ledger.open(home / "ledger.db")) as ledger, dg.DagsterInstance.ephemeral() as instance:
        received(home, "payments-late")
        ledger.start_batch("here", "payments-late", feed="payments", file_name="payments.csv")
        ledger.start_run("here", "payments-late")

        def pause_of_late() -> timedelta:
            result = repository.get_sensor_def("unfinished")(
                dg.build_sensor_context(instance, repository_def=repository)
            )
            assert isinstance(result, dg.SensorResult)
            return understood(result.cursor, dict[str, BatchTries], {})["payments-late"].due - datetime.fromisoformat(
                str(ledger.runs("here", "payments-late")[-1]["started_at"])
            )

        assert pause_of_late() == FIRST
        ledger.finish_batch("here", "payments-late", "running", {"in_doubt": 1})
        assert pause_of_late() == timedelta(minutes=15)


def test_the_first_file_of_a_home_whose_target_was_away_is_named_and_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing had made a ledger, so that no look knew of it."""
    received(tmp_path, "payments-first")
    repository = build_definitions({"CHARTFERRY_HOME": str(tmp_path)}).get_repository_def()
    sensor = repository.get_sensor_def("unfinished")
    with dg.DagsterInstance.ephemeral() as instance:

        def tick() -> dg.SensorResult | dg.SkipReason:
            result = sensor(dg.build_sensor_context(instance, repository_def=repository))
            assert isinstance(result, dg.SensorResult | dg.SkipReason)
            return result

        assert isinstance(tick(), dg.SkipReason)
        held = waiting_now(tmp_path, {}, (), datetime.now(UTC))
        assert held
        assert (held.cause, held.files) == ("target", ("payments.csv",))
        monkeypatch.setattr(unfinished, "target_now", lambda *_: "here")
        found = tick()
    assert isinstance(found, dg.SensorResult)
    assert [request.partition_key for request in found.run_requests or ()] == ["payments-first"]


@pytest.mark.parametrize("off", [timedelta(minutes=-5), timedelta(hours=2)])
def test_a_loader_is_at_work_as_long_as_it_gives_signs_of_life_whatever_its_clock_says(
    home: Path, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    """SCALE-03: the batch of a dead one whose clock was ahead would wait until then."""
    monkeypatch.setattr("pipelines.ledger.lease.is_dead", lambda _: False)
    silence, now = Silence(most_between=inf), 1_000.0
    monkeypatch.setattr("pipelines.dagster.unfinished.time.monotonic", lambda: now)
    with closing(Ledger.open(home / "ledger.db")) as ledger, ledger.lease("here"):
        for looked, beats, at_work in (
            (0, 0, True),
            (61, 40, True),
            (100, 40, True),
            (122, 40, False),
            (183, 190, True),
        ):
            now = 1_000.0 + looked
            tell(ledger, NOW + off + timedelta(seconds=beats))
            assert are_loaders_at_work(ledger, silence) is at_work
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        assert not are_loaders_at_work(ledger, silence)


@pytest.mark.parametrize("off", [timedelta(minutes=-5), timedelta(hours=2)])
@pytest.mark.parametrize(("beats_at", "at_work"), [(None, False), (9, True)], ids=["silent", "that beats"])
def test_a_loader_with_a_heartbeat_counts_as_working_whatever_its_clock_says(
    home: Path, monkeypatch: pytest.MonkeyPatch, off: timedelta, beats_at: int | None, at_work: bool
) -> None:
    """SCALE-03: two heartbeats are waited for."""
    monkeypatch.setattr("pipelines.ledger.lease.is_dead", lambda _: False)
    paused = list[float]()
    with closing(Ledger.open(home / "ledger.db")) as ledger, ledger.lease("here"):
        tell(ledger, NOW + off)

        def pause(seconds: float) -> None:
            paused.append(seconds)
            if len(paused) == beats_at:
                tell(ledger, NOW + off + timedelta(seconds=9))

        assert somebody_loads(ledger, pause) is at_work
        assert sum(paused) == (beats_at or 20)
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        assert not somebody_loads(ledger, pause)


def tell(ledger: Ledger, moment: datetime) -> None:
    """Give a sign of life for whoever loads."""
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(heartbeat_at=utc_text(moment)))


@pytest.mark.parametrize(("said", "read_by", "asked"), [("all", "", True), ("ask", "", False), ("all", "now", False)])
def test_the_sensor_asks_for_copayments_that_waited_once_their_feed_confirms_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, read_by: str, asked: bool
) -> None:
    """LEDGER-23: once for each change of the feed file."""
    feed = feed_file(tmp_path, "till", f'kind = "payments"\nfiles = ["till*"]\ncopayments = "{said}"\n', PAYMENTS)
    received(tmp_path, "till-waits")
    with closing(Ledger.open(tmp_path / "ledger.db", lambda: NOW - timedelta(days=1))) as ledger:
        ledger.start_batch("here", "till-waits", feed="till", file_name="till.csv")
        number = ledger.start_run("here", "till-waits", feed_hash=load_feed(feed).hash if read_by else "before")
        ledger.finish_run("here", "till-waits", number, state="stopped", counts={"copayments": 20})
        ledger.finish_batch("here", "till-waits", "stopped", {"copayments": 20})
    monkeypatch.setattr(unfinished, "target_now", lambda *_: "here")
    repository = build_definitions({"CHARTFERRY_HOME": str(tmp_path)}).get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, repository_def=repository)
        result = repository.get_sensor_def("unfinished")(context)
    assert isinstance(result, dg.SensorResult)
    assert [request.partition_key for request in result.run_requests or ()] == ["till-waits"] * asked
