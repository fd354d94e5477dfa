"""SIGKILL in each phase of a write, under load: what was acknowledged is there after a restart, and all is clean."""

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from fhir_service.admin.checks import check_store
from fhir_service.audit.records import read
from fhir_service.service import Service
from fhir_service.serving.audit_after_kill import put_on_record
from fhir_service.settings import Settings
from tests.conftest import small_world
from tests.support import loopback
from tests.support.bodies import entry, payment, task
from tests.support.starting import start

PHASES = ("waiting", "rules", "append", "commit", "committed", "answering", "catching up", "caught up")
RARE = ("catching up", "caught up")
"""Phases that come once in 500 writes, or when the service has a rest."""
BRIEFLY = ("waiting", "append", "answering", "catching up")
"""Those of `make test`, whose test of batches has two others."""
CLIENTS = 6


def prepared(store: Path) -> dict[str, str]:
    """A store with the world loaded, and the headers of a client."""
    shutil.copy(small_world(), store)
    service = Service.open(Settings(store=str(store)))
    client = service.auth.add_client("load")
    form = {"grant_type": "client_credentials"} | {k: client[k] for k in ("client_id", "client_secret")}
    _, token = service.auth.token(form)
    service.close()
    return {"authorization": f"Bearer {token['access_token']}"}


class Load:
    """Clients that create until the service is gone; what was acknowledged, by location, with what was sent."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url, self._headers = url, headers
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.sent: list[dict[str, Any]] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._client, args=[n]) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, client: int) -> None:
        with loopback.Client(base_url=self._url, headers=self._headers, timeout=20) as http:
            for n in range(500):
                body = payment(1 + n % 3) if n % 2 else task(client * 1000 + n)
                self.sent.append(body)
                try:
                    answer = http.post(f"/{body['resourceType']}", json=body)
                except httpx.HTTPError:
                    return
                if answer.status_code == 201:
                    self.acknowledged[answer.headers["location"].removeprefix(self._url)] = body


def killed_under_load(store: Path, headers: dict[str, str], phase: str, number: int) -> Load:
    command = [sys.executable, "-m", "tests.support.dying", phase, str(number), str(store)]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as service:
        assert service.stdout is not None
        url = service.stdout.readline().split()[-1]
        load = Load(url, headers)
        load.run()
        assert service.wait(20) == -9
    return load


@pytest.mark.parametrize(
    "phase", [phase if phase in BRIEFLY else pytest.param(phase, marks=pytest.mark.long) for phase in PHASES]
)
def test_acknowledged_writes_survive_a_kill(tmp_path: Path, phase: str) -> None:
    survives(tmp_path, phase, 1 if phase in RARE else random.Random(phase).randint(3, 25))


@pytest.mark.parametrize(
    ("phase", "stored"),
    [
        *(pytest.param(phase, 0, marks=pytest.mark.long) for phase in ("rules", "append")),
        ("commit", 0),
        ("committed", 40),
    ],
)
def test_a_batch_is_there_whole_or_not_at_all(tmp_path: Path, phase: str, stored: int) -> None:
    """EXTRA-BATCH-05: one durable commit for all entries of a bundle."""
    store = tmp_path / "service.duckdb"
    headers = prepared(store)
    number = "20" if phase == "rules" else "1"
    command = [sys.executable, "-m", "tests.support.dying", phase, number, str(store)]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ) as service:
        assert service.stdout is not None
        url = service.stdout.readline().split()[-1]
        bundle = {"resourceType": "Bundle", "type": "batch", "entry": [entry(task(n)) for n in range(40)]}
        with pytest.raises(httpx.HTTPError):
            loopback.post(f"{url}/", json=bundle, headers=headers, timeout=20)
        assert service.wait(20) == -9
    reopened = Service.open(Settings(store=str(store)))
    try:
        assert len(_stored(reopened)) == stored
        assert _on_record(reopened) == sorted(_stored(reopened))
        assert [finding for finding in check_store(reopened.store, reopened.site) if not finding.notice] == []
    finally:
        reopened.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("phase", PHASES)
def test_acknowledged_writes_survive_a_kill_at_any_time(tmp_path: Path, phase: str, seed: int) -> None:
    survives(tmp_path, phase, random.Random(f"{phase}{seed}").randint(1, 4 if phase in RARE else 80))


def survives(folder: Path, phase: str, number: int) -> None:
    store = folder / "service.duckdb"
    headers = prepared(store)
    load = killed_under_load(store, headers, phase, number)
    service = Service.open(Settings(store=str(store)))
    try:
        stored = _stored(service)
        for location, body in load.acknowledged.items():
            assert stored[location.removeprefix("/")] == _content(body)
        assert len(stored) <= len(load.sent)
        assert _on_record(service) == sorted(stored)
        assert [finding for finding in check_store(service.store, service.site) if not finding.notice] == []
    finally:
        service.close()


def _stored(service: Service) -> dict[str, Any]:
    """Return the content of each stored task and payment by `Type/id`."""
    with service.store.read() as connection:
        tasks = connection.exec_driver_sql("SELECT 'Task/' || id, description FROM task").all()
        payments = connection.exec_driver_sql("SELECT 'PaymentNotice/' || id, cents FROM payment_notice").all()
    return dict([*map(tuple, tasks), *map(tuple, payments)])


def _on_record(service: Service) -> list[str]:
    """`Type/id` of each create that is on record, once its service has started again."""
    put_on_record(service)
    records = [record for record in read(service.audit.path, None, None, None) if record["status"] == 201]
    return sorted(f"{record['type']}/{record['id']}" for record in records if record["interaction"] == "create")


def _content(body: dict[str, Any]) -> Any:
    return body["description"] if body["resourceType"] == "Task" else round(body["amount"]["value"] * 100)
