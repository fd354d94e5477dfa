"""A store without room: 503 until it has some again, and what is acknowledged is there.

A PostgreSQL that takes no more connections, or has no more locks; a DuckDB whose disk is full.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from fhir_service.admin.running_service import HEADER
from fhir_service.admin.service_door import routes
from fhir_service.store import log_file
from tests.conftest import Running, running
from tests.support.bodies import task, total
from tests.support.postgres import Postgres, running_server

REQUESTS = 40
MOUNTS = os.geteuid() == 0 and sys.platform == "linux" and shutil.which("mount") is not None


def asked(found: Running, first: int) -> Counter[int]:
    """Statuses of creates and reads, many at once."""

    def ask(number: int) -> int:
        answer = found.client.post("/Task", json=task(number)) if number % 2 else found.client.get("/Task?_count=1")
        if answer.status_code == 503:
            assert answer.json()["issue"][0]["code"] == "transient"
        return answer.status_code

    with ThreadPoolExecutor(16) as threads:
        return Counter(threads.map(ask, range(first, first + REQUESTS)))


@pytest.mark.long
def test_a_server_that_takes_no_more_connections_is_503_until_it_does(postgres: Postgres, tmp_path: Path) -> None:
    """SCALE-01"""
    with (
        postgres.database() as whole,
        postgres.limited(whole, "few") as (url, limit),
        running(tmp_path, store=url) as found,
    ):
        limit(1)
        came = asked(found, 1)
        assert came.keys() <= {200, 201, 503}
        assert came[503]
        limit(-1)
        assert asked(found, 100) == {200: REQUESTS // 2, 201: REQUESTS // 2}
        assert total(found.client, "/Task?_count=0") == came[201] + REQUESTS // 2


@pytest.mark.long
def test_a_server_without_locks_is_503_until_it_has_some(tmp_path: Path) -> None:
    """SCALE-01"""
    with running_server() as server, server.database() as url, running(tmp_path, store=url) as found:
        with server.without_locks():
            came = asked(found, 1)
            assert came.keys() <= {200, 201, 503}
        assert asked(found, 100) == {200: REQUESTS // 2, 201: REQUESTS // 2}
        assert total(found.client, "/Task?_count=0") == came[201] + REQUESTS // 2


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def statuses(found: Running, task_id: str, token: dict[str, str]) -> dict[str, int]:
    client = found.client
    answers = {
        "create": client.post("/Task", json=large()),
        "update": client.put(f"/Task/{task_id}", json=large()),
        "search": client.get("/Task?_count=1"),
        "token": httpx.post(f"{found.url}/auth/token", data=token),
        "health": client.get("/health"),
    }
    return {name: answer.status_code for name, answer in answers.items()}


async def at_the_door(app: Starlette, operation: str, arguments: dict[str, str]) -> object:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        answer = await client.post(f"/_door/{operation}", headers={HEADER: "secret"}, json=arguments)
    return answer.json()


def large() -> dict[str, object]:
    return task(1) | {"description": os.urandom(40_000).hex()}


@pytest.mark.skipif(not MOUNTS, reason="a disk of its own needs Linux and root")
def test_a_service_whose_disk_was_full_serves_again_once_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCALE-01: to work the log into the file without room would end the database for this process."""
    monkeypatch.setattr(log_file, "LARGE", 1 << 20)
    with (
        small_disk(tmp_path / "disk") as disk,
        running(disk, store=str(disk / "s.duckdb"), audit=str(tmp_path / "audit")) as found,
    ):
        client = found.service.auth.add_client("more")
        token = {"grant_type": "client_credentials"} | {name: client[name] for name in ("client_id", "client_secret")}
        made: list[str] = []
        while (answer := found.client.post("/Task", json=large())).status_code == 201:
            made.append(answer.headers["location"].rpartition("/")[2])
        full = {"create": 503, "update": 503, "search": 503, "token": 503, "health": 503}
        assert [statuses(found, made[0], token) for _ in range(2)] == [full, full]
        assert answer.json()["issue"][0]["diagnostics"] == "the disk of the store is full"
        app = Starlette(routes=routes(found.service, "secret"))
        said = asyncio.run(at_the_door(app, "client-add", {"name": "late"}))
        where = disk / "s.duckdb"
        assert said == {
            "error": f"there is no space left on the disk of {where}: make room there, and try again",
            "exit": 1,
        }
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        works = {"create": 201, "update": 200, "search": 200, "token": 200, "health": 200}
        assert [statuses(found, made[0], token) for _ in range(2)] == [works, works]
        assert total(found.client, "/Task?_count=0") == len(made) + 2
        assert (disk / "s.duckdb.wal").stat().st_size < 2 << 20


ENDING = """
import duckdb
from fhir_service.__main__ import main
from fhir_service.store.dialects import DuckDb
DuckDb.settle = lambda self, _: self.passing(duckdb.FatalException("the database has been invalidated"))
main()
"""


def test_a_service_whose_database_has_ended_ends_with_a_sentence(tmp_path: Path) -> None:
    """Another process can open it, whoever watches this one starts it."""
    command = [sys.executable, "-c", ENDING, "serve", "--store", str(tmp_path / "s.duckdb"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().split()[-1]
        assert httpx.get(f"{url}/health").status_code == 200  # it stores something, and settles
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Error: the database ended after a failure of its disk" in said
