"""`GET /health`: ok means that a write can be stored, put on record and answered."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from sqlalchemy import select

from fhir_service.store.tables import STORE
from fhir_service.web import health
from fhir_service.web.health import Probe
from fhir_service.writing import commits
from fhir_service.writing.contending import Contender, InDoubt
from fhir_service.writing.entry import Entry
from tests.conftest import BOTH, Running
from tests.support.bodies import task

STORES = BOTH
OK, STORES_NOTHING = (200, None), (503, "the store cannot be written")


@pytest.fixture(autouse=True)
def nothing_stored_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)


def asked(running: Running) -> tuple[int, str | None]:
    answer = running.client.get("/health", headers={"authorization": ""})
    return answer.status_code, answer.json().get("problem")


def fail(*_: Any) -> None:
    raise commits.CommitFailed("planted")


def doubt(*_: object) -> None:
    """A commit beside other processes that was not answered."""
    raise InDoubt


def test_health_is_ok_only_while_a_write_can_be_stored(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXTRA-OPS-01: it finds out by itself, without a client's write, and when it is over."""
    assert asked(fresh_service) == OK
    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_committing", fail)
        patch.setattr(Contender, "commit", doubt)
        assert asked(fresh_service) == STORES_NOTHING
        assert fresh_service.client.post("/Task", json=task(1)).status_code == 500
    assert asked(fresh_service) == OK
    with fresh_service.service.store.read() as connection:
        assert connection.execute(select(STORE.c.value).where(STORE.c.name == "probe")).scalar()


def test_a_recent_commit_needs_no_probe(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frequent requests cause no commits. After a failure there is a new probe."""
    monkeypatch.setattr(health, "FRESH_SECONDS", 600.0)
    held: list[int] = []
    monkeypatch.setattr(fresh_service.service.writer._commits, "_committed", held.append)
    assert fresh_service.client.post("/Task", json=task(1)).status_code == 201
    assert [asked(fresh_service) for _ in range(5)] == [OK] * 5
    assert held == [1]
    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_committing", fail)
        patch.setattr(Contender, "commit", doubt)
        fresh_service.client.post("/Task", json=task(1))
        assert asked(fresh_service) == STORES_NOTHING


def busy(running: Running, until: Event) -> Callable[[], object]:
    """A command that holds the writer."""
    return lambda: running.service.writer.transact(lambda _: until.wait(30))


def test_a_writer_that_is_busy_is_asked_once_for_all(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long load is no fault for as long as writes wait for it; then they are refused, and `/health` says so."""
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    asked_of: list[object] = []
    submit = fresh_service.service.writer.submit

    def noted(entries: Sequence[Entry]) -> object:
        asked_of.extend(entries)
        return submit(entries)

    monkeypatch.setattr(fresh_service.service.writer, "submit", noted)
    done = Event()
    with ThreadPoolExecutor() as pool:
        pool.submit(busy(fresh_service, done))
        assert {asked(fresh_service) for _ in range(4)} == {OK}
        monkeypatch.setattr(health, "BUSY_SECONDS", 0.0)
        assert asked(fresh_service) == STORES_NOTHING
        assert [type(one) for one in asked_of] == [Probe]
        done.set()
    monkeypatch.setattr(health, "PROBE_SECONDS", 5.0)
    assert asked(fresh_service) == OK
