"""Fixtures that the areas share: a real service on loopback over a fresh store with the small world loaded."""

import itertools
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import uvicorn

from fhir_service.app import create_app
from fhir_service.reference import load
from fhir_service.service import Service, utc_now, uuid4
from fhir_service.settings import Settings

WORLD = Path(__file__).parent / "spec" / "world"


@dataclass(frozen=True)
class Running:
    """A service that listens: its parts, its address and a client that may do everything."""

    service: Service
    url: str
    headers: dict[str, str]
    client: httpx.Client


@contextmanager
def running(
    folder: Path,
    world: Path | None = WORLD,
    clock: Callable[[], datetime] = utc_now,
    new_id: Callable[[], str] = uuid4,
    **settings: object,
) -> Iterator[Running]:
    """A service over a new store in `folder`, with reference data from `world`."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        options: dict[str, object] = {"store": str(folder / "service.duckdb"), "port": port} | settings
        service = Service.open(Settings(**options), clock=clock, new_id=new_id)  # type: ignore[arg-type]
        if world:
            load([world], service.writer, service.store, service.clock, service.new_id, service.site)
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            client = service.auth.add_client("tests")
            url = service.settings.url
            form = {"grant_type": "client_credentials"} | {k: client[k] for k in ("client_id", "client_secret")}
            token = httpx.post(f"{url}/auth/token", data=form).json()["access_token"]
            headers = {"authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
                yield Running(service, url, headers, http)
        finally:
            server.should_exit = True
            thread.join()
            service.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for tests that only add to it, or look at what they made themselves."""
    with running(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def fresh_service(tmp_path: Path) -> Iterator[Running]:
    """A service of the test's own."""
    with running(tmp_path) as found:
        yield found


def counted_ids() -> Callable[[], str]:
    """Predictable ids: UUIDs that count."""
    numbers = itertools.count(1)
    return lambda: str(uuid.UUID(int=next(numbers)))


FROZEN = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
