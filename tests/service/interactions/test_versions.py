"""Versions of a record follow one another in time, whatever the clock of a service says; and no change is missed."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fhir_service.reference.loading import load
from tests.conftest import BOTH, FROZEN, WORLD, Database, Running, running
from tests.support.bodies import send, task

STORES = BOTH
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


class SetClock:
    """A clock that shows what it was set to."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@contextmanager
def clocked(folder: Path, ready: Database, clock: SetClock) -> Iterator[Running]:
    with ready(folder) as store, running(folder, world=None, store=store, clock=clock) as found:
        yield found


def versions(service: Running, path: str) -> list[tuple[str, datetime]]:
    """(etag, time) of the versions of a record, newest first."""
    entries = service.client.get(f"{path}/_history?_count=100").json()["entry"]
    shown = [entry["response"] for entry in entries]
    return [(one["etag"], datetime.fromisoformat(one["lastModified"])) for one in shown]


def made(service: Running, number: int) -> str:
    """The path of a new task."""
    location = service.client.post("/Task", json=task(number)).headers["location"]
    return str(location.removeprefix(service.url))


def changing(path: str, number: int) -> dict[str, Any]:
    """An entry of a batch that changes a task."""
    body = task(1, description=f"change {number}")
    return {"resource": body, "request": {"method": "PUT", "url": path.removeprefix("/")}}


def test_a_version_is_later_than_the_one_before_whatever_the_clock_says(tmp_path: Path, ready: Database) -> None:
    """COMMON-64, EXTRA-HISTORY-02: the clock goes on, stands still and is set back; several changes share a commit."""
    random, clock = Random(64), SetClock(FROZEN)
    steps = [timedelta(0), timedelta(microseconds=1), SECOND, 2 * HOUR, -SECOND, -HOUR]
    with clocked(tmp_path, ready, clock) as service:
        path = made(service, 1)
        for number in range(25):
            clock.now += random.choice(steps)
            answers = send(service.client, [changing(path, number)] * random.choice([1, 1, 3]))
            assert {answer["status"] for answer in answers} == {"200"}
        found = versions(service, path)
    count = len(found)
    assert [etag for etag, _ in found] == [f'W/"{number}"' for number in range(count, 0, -1)]
    times = [time for _, time in found]
    assert all(newer > older for newer, older in pairwise(times))


@pytest.mark.parametrize(
    ("back", "apart"), [(timedelta(0), timedelta(microseconds=1)), (SECOND, SECOND), (HOUR, SECOND)]
)
def test_a_version_is_a_second_later_where_the_clock_is_behind(
    tmp_path: Path, ready: Database, back: timedelta, apart: timedelta
) -> None:
    """COMMON-64: a microsecond where the clock stands still."""
    clock = SetClock(FROZEN)
    with clocked(tmp_path, ready, clock) as service:
        path = made(service, 1)
        clock.now -= back
        assert service.client.put(path, json=task(1)).status_code == 200
        assert [time for _, time in versions(service, path)] == [FROZEN + apart, FROZEN]


@pytest.mark.on_both
def test_no_change_is_lost_where_the_clock_is_set_back(tmp_path: Path, ready: Database) -> None:
    """COMMON-64, ERR-412-03: the date of a version that was changed since lets no update through."""
    clock = SetClock(FROZEN)
    with clocked(tmp_path, ready, clock) as service:
        path = made(service, 1)
        read = service.client.get(path).headers["last-modified"]
        clock.now -= timedelta(seconds=5)
        unchanged = {"if-unmodified-since": read}
        assert service.client.put(path, json=task(1, status="completed"), headers=unchanged).status_code == 200
        assert service.client.put(path, json=task(1, status="cancelled"), headers=unchanged).status_code == 412
        assert service.client.get(path).json()["status"] == "completed"


@pytest.mark.on_both
def test_no_change_is_lost_where_two_services_have_other_clocks(tmp_path: Path, database: Database) -> None:
    """COMMON-64: the second of two services over one store is seconds behind."""
    ahead, behind = SetClock(FROZEN), SetClock(FROZEN - timedelta(seconds=3))
    with ExitStack() as stack:
        store = stack.enter_context(database(tmp_path))
        if "://" not in store:
            pytest.skip("one process owns a DuckDB file")
        first = stack.enter_context(running(tmp_path, store=store, clock=ahead))
        second = stack.enter_context(running(tmp_path, store=store, clock=behind, world=None))
        path = made(first, 1)
        read = {"if-unmodified-since": second.client.get(path).headers["last-modified"]}
        assert second.client.put(path, json=task(1, status="completed"), headers=read).status_code == 200
        assert first.client.put(path, json=task(1, status="cancelled"), headers=read).status_code == 412
        assert [etag for etag, _ in versions(first, path)] == ['W/"2"', 'W/"1"']


def test_a_loaded_record_is_later_than_its_version_before(tmp_path: Path, ready: Database) -> None:
    """COMMON-64: reports and questionnaires are loaded, not written over the interface."""
    clock = SetClock(FROZEN)
    with clocked(tmp_path, ready, clock) as service:
        lines = (WORLD / "diagnostic_report.ndjson").read_text(encoding="utf-8").splitlines()
        report = json.loads(lines[0])
        path, parts = f"/DiagnosticReport/{report['id']}", service.service
        before = service.client.get(path).headers["last-modified"]
        clock.now -= HOUR
        report["code"]["text"] = "Changed"
        (tmp_path / "again.ndjson").write_text(json.dumps(report), encoding="utf-8")
        load([tmp_path / "again.ndjson"], parts.writer, parts.store, clock, parts.new_id, parts.site)
        after = service.client.get(path)
        assert after.headers["etag"] == 'W/"2"'
        assert (before, after.headers["last-modified"]) == (
            "Sun, 01 Mar 2026 12:30:15 GMT",
            "Sun, 01 Mar 2026 12:30:16 GMT",
        )


@pytest.mark.parametrize("behind", [timedelta(0), SECOND, timedelta(minutes=4, seconds=59)])
def test_changes_since_an_instant_miss_nothing_of_a_clock_that_is_behind(
    tmp_path: Path, ready: Database, behind: timedelta
) -> None:
    """EXTRA-HISTORY-03: who asks what came since the newest change learns of one by a clock that is behind."""
    clock = SetClock(FROZEN)
    with clocked(tmp_path, ready, clock) as service:
        clock.now = FROZEN - HOUR
        made(service, 0)
        clock.now = FROZEN
        path = made(service, 1)
        newest = versions(service, path)[0][1].isoformat()
        clock.now = FROZEN - behind
        late = made(service, 2)
        found = service.client.get("/Task/_history", params={"_since": newest}).json()
        ids = {entry["resource"]["id"] for entry in found["entry"]}
        assert ids == {one.rpartition("/")[2] for one in (path, late)}


def test_changes_since_the_first_instant_of_the_calendar(fresh_service: Running) -> None:
    """EXTRA-HISTORY-03: nothing reaches back beyond it."""
    found = fresh_service.client.get("/Task/_history", params={"_since": "0001-01-01T00:00:00Z"})
    assert (found.status_code, found.json()["total"]) == (200, 0)
