"""Kills of processes behind one address, and of their PostgreSQL, under load: acknowledged writes are there, once."""

import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from sqlalchemy import make_url

from fhir_service.admin.checks import check_store
from fhir_service.serving import workers
from tests.conftest import running
from tests.support import loopback
from tests.support.bodies import task
from tests.support.contention import authorized, made
from tests.support.postgres import Postgres
from tests.support.standing import until
from tests.support.supervised import supervised

CLIENTS = 8
PAUSE = 0.03
"""Seconds between two requests of a client."""


class Load:
    """Clients that create tasks of their own numbers until they are stopped; the numbers that were acknowledged.

    Half of the tasks are sent again, on their condition, until they are acknowledged. The others are sent once. Each
    client pauses between its requests: all of them together would take what the processes need to come back.
    """

    def __init__(self, address: str, headers: dict[str, str]) -> None:
        self._address, self._headers = address, headers
        self._numbers, self._stopped = itertools.count(1), threading.Event()
        self.acknowledged: list[int] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()

    def goes_on(self) -> None:
        """Wait until requests were acknowledged that began from now on."""
        first = next(self._numbers)
        until(lambda: any(number > first for number in self.acknowledged[-CLIENTS:]), "a write")

    def _client(self) -> None:
        with loopback.Client(base_url=self._address, headers=self._headers, timeout=60) as client:
            while not self._stopped.is_set():
                number = next(self._numbers)
                again = number % 2 == 0
                while not self._sent(client, number, again) and again:
                    self._stopped.wait(PAUSE)
                self._stopped.wait(PAUSE)

    def _sent(self, client: httpx.Client, number: int, conditional: bool) -> bool:
        """Send a task; return True if it was acknowledged."""
        condition = {"if-none-exist": f"identifier=urn:test|{number}"} if conditional else {}
        try:
            answer = client.post("/Task", json=task(number), headers=condition)
        except httpx.TransportError:
            return False
        if answer.status_code in (200, 201):
            self.acknowledged.append(number)
            return True
        assert answer.status_code in (500, 503), answer.text
        return False


def killed_under_load(store: str, folder: Path, processes: int, kills: list[Callable[[psutil.Process], None]]) -> None:
    with supervised(store, made(folder / "served"), processes) as (watching, address):
        load = Load(address, authorized(store))
        with load.at_work():
            load.goes_on()
            for kill in kills:
                kill(watching)
                load.goes_on()
        until(lambda: len(watching.children()) == processes, "another process")
        children = watching.children()
    assert not any(child.is_running() for child in children)
    there = stored(store)
    assert not {number: count for number, count in there.items() if count > 1}
    assert not set(load.acknowledged) - there.keys()
    with running(made(folder / "after"), world=None, store=store) as found:
        assert not [one for one in check_store(found.service.store, found.service.site) if not one.notice]


def stored(store: str) -> Counter[int]:
    """The numbers of the tasks in a store."""
    url = make_url(store)
    with psycopg.connect(host=str(url.query["host"]), user="tests", dbname=url.database) as connection:
        bodies = connection.execute("SELECT body FROM task").fetchall()
    return Counter(int(json.loads(body)["identifier"][0]["value"]) for (body,) in bodies)


def some_of(chosen: random.Random, most: int) -> Callable[[psutil.Process], None]:
    """Return a function that kills at most so many of the processes, also starting ones."""

    def kill(watching: psutil.Process) -> None:
        children = watching.children()
        for child in chosen.sample(children, min(len(children), most)):
            child.kill()

    return kill


def test_acknowledged_writes_outlive_a_process_that_is_killed(store: str, tmp_path: Path) -> None:
    """SCALE-01, CLI-SVC-02: and the processes end with the one that watches them."""
    killed_under_load(store, tmp_path, 2, [some_of(random.Random(1), 1)])


@pytest.mark.long
def test_acknowledged_writes_outlive_a_process_and_a_database_that_are_killed(
    store: str, postgres: Postgres, tmp_path: Path
) -> None:
    """SCALE-01: nobody reads the log meanwhile."""
    killed_under_load(store, tmp_path, 2, [some_of(random.Random(1), 1), lambda _: postgres.restart()])


@pytest.mark.long
def test_acknowledged_writes_outlive_twenty_kills(store: str, postgres: Postgres, tmp_path: Path) -> None:
    """SCALE-01: of one process, of all at once, and of PostgreSQL."""
    chosen = random.Random(20)
    kinds = [some_of(chosen, 1), some_of(chosen, 1), some_of(chosen, 4), lambda _: postgres.restart()]
    killed_under_load(store, tmp_path, 4, [kinds[n % len(kinds)] for n in range(20)])


def test_the_next_start_waits_for_those_alone_that_failed_lately() -> None:
    """SCALE-01"""
    failed = workers.FailedStarts()
    assert (failed.pause(0.0), failed.are_there(0.0)) == (0.0, False)
    pauses = []
    for now in (100.0, 101.0, 102.0, 103.0):
        failed.note(now)
        pauses.append(failed.pause(now))
    assert pauses == pytest.approx([0.1, 0.5, 2.0, 2.0])
    assert (failed.pause(104.5), failed.are_there(104.5)) == (0.5, True)
    assert (failed.pause(105.5), failed.are_there(132.5)) == (0.0, True)
    assert not failed.are_there(133.0)
