"""Two processes whose clocks are hours apart: importers over one ledger, and services over one store."""

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import WORLD, Running, running
from tests.support import loopback
from tests.support.bodies import task
from tests.support.called import command_output
from tests.support.clocks import APART, CAN, LACKING, library, off_by
from tests.support.commands import command, environment, resources
from tests.support.deployments import psycopg_address
from tests.support.payers import paid, payments, practice
from tests.support.postgres import Postgres
from tests.support.standing import until

pytestmark = [pytest.mark.long, pytest.mark.skipif(not CAN, reason=LACKING)]
CLOCKS = (5, -120)
"""Minutes by which they are off."""
PATIENTS, ROWS = 50, 8_000
SILENCE_SECONDS = 4
WAITS = re.compile(r"waiting for process \d+ on \S+, which loads into this target")


# -- importers over one ledger


class Importers:
    """Processes that import from one home, each with a clock of its own."""

    def __init__(self, service: Running, ledger: str, folder: Path, processes: ExitStack) -> None:
        client = service.service.auth.add_client("importer")
        self._environ = environment(
            FHIR_BASE_URL=service.url,
            FHIR_CLIENT_ID=client["client_id"],
            FHIR_CLIENT_SECRET=client["client_secret"],
            CHARTFERRY_LEDGER=ledger,
            CHARTFERRY_SETTLING_SECONDS="0",
            CHARTFERRY_WORKERS="2",
            SILENCE_SECONDS=str(SILENCE_SECONDS),
        )
        self._ledger, self._home, self._processes = psycopg_address(ledger), folder / "home", processes
        self._clocks = library(folder)

    def start(self, minutes: int, said: Path, **more: str) -> "subprocess.Popen[Any]":
        halting = ["-m", "tests.support.halting", str(said.with_suffix(".halt")), "nowhere", "0"]
        whole = [*APART, sys.executable, *halting, "--home", str(self._home), "import"]
        with said.open("w") as file:
            started = subprocess.Popen(
                whole, env=self._environ | off_by(minutes, self._clocks) | more, stdout=file, stderr=subprocess.STDOUT
            )
        self._processes.callback(started.wait)
        self._processes.callback(started.kill)
        return started

    def loader(self) -> tuple[Any, ...] | None:
        """Return the loader that has the target, and its last heartbeat."""
        with psycopg.connect(self._ledger) as connection:
            return connection.execute("SELECT owner, heartbeat_at FROM lease").fetchone()


@contextmanager
def importers(postgres: Postgres, folder: Path) -> Iterator[tuple[Importers, Running]]:
    (made := folder / "service").mkdir()
    with (
        running(made, world=practice(made / "world", PATIENTS)) as service,
        postgres.database() as ledger,
        ExitStack() as processes,
    ):
        yield Importers(service, ledger, folder, processes), service


@pytest.mark.parametrize("first", [0, 1], ids=["that is ahead", "that is behind"])
def test_an_importer_that_is_killed_is_followed_by_one_whose_clock_is_hours_off(
    postgres: Postgres, tmp_path: Path, first: int
) -> None:
    """SCALE-02, SCALE-03, LEDGER-01: it waits while the other lives, says so, and then ends the load of both files."""
    source = exports(tmp_path / "home" / "inbox", first)
    with importers(postgres, tmp_path) as (made, service):
        said = [tmp_path / f"{number}.txt" for number in range(2)]
        slowly = {"CHARTFERRY_REQUESTS_PER_SECOND": "1"}
        leads = made.start(CLOCKS[first], said[0], **slowly)
        until(lambda: created(service), "the load", pause=0.05)
        waits = made.start(CLOCKS[1 - first], said[1])
        until(lambda: WAITS.search(said[1].read_text()), "the one that waits", pause=0.05)
        owner, begun = made.loader() or ("", "")
        time.sleep(1.5 * SILENCE_SECONDS)
        owns, beats = made.loader() or ("", "")
        assert owns == owner
        assert beats > begun
        assert created(service) < ROWS
        leads.kill()
        assert waits.wait(240) == 0, said[1].read_text()
        assert made.start(0, tmp_path / "last.txt").wait(120) == 0
        assert Counter(paid(resources(service.client, "PaymentNotice"))) == source
    assert "Traceback" not in "".join(each.read_text() for each in said)


def test_importers_that_are_begun_at_once_make_each_row_once(postgres: Postgres, tmp_path: Path) -> None:
    """SCALE-02, SCALE-03, LEDGER-01"""
    source = exports(tmp_path / "home" / "inbox", 7)
    with importers(postgres, tmp_path) as (made, service):
        said = [tmp_path / f"{number}.txt" for number in range(2)]
        both = [made.start(minutes, file) for minutes, file in zip(CLOCKS, said, strict=True)]
        assert [each.wait(240) for each in both] == [0, 0], [each.read_text() for each in said]
        assert Counter(paid(resources(service.client, "PaymentNotice"))) == source


def exports(inbox: Path, seed: int) -> Counter[Any]:
    """Write two exports, and return what they come to."""
    inbox.mkdir(parents=True)
    source = Counter[Any]()
    for name in "ab":
        text, some = payments(name, ROWS // 2, PATIENTS, random.Random(f"{seed}{name}"))
        (inbox / f"payments-{name}.csv").write_text(text)
        source += some
    return source


def created(service: Running) -> int:
    return int(service.client.get("/PaymentNotice?_count=0").json()["total"])


# -- services over one store


@pytest.fixture
def services(postgres: Postgres, tmp_path: Path) -> Iterator[list[httpx.Client]]:
    """Clients of two services over one store, whose clocks are apart, each with the token of the other one."""
    with postgres.database() as store, ExitStack() as stack:
        command_output("load", "--store", store, str(WORLD))
        clocks = [off_by(minutes, library(tmp_path)) for minutes in CLOCKS]
        urls = [stack.enter_context(served(store, tmp_path / str(at), each)) for at, each in enumerate(clocks)]
        added = json.loads(command_output("client", "add", "--store", store, "--name", "importer"))
        form = {"grant_type": "client_credentials"} | {name: added[name] for name in ("client_id", "client_secret")}
        tokens = [httpx.post(f"{url}/auth/token", data=form).json()["access_token"] for url in urls]
        clients = [
            stack.enter_context(loopback.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60))
            for url, token in zip(urls, reversed(tokens), strict=True)
        ]
        yield clients


@contextmanager
def served(store: str, folder: Path, clock: dict[str, str]) -> Iterator[str]:
    folder.mkdir()
    arguments = command("fhir-service", "serve", "--store", store, "--port", 0)
    environ = environment() | clock
    with subprocess.Popen(arguments, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()


def test_pages_of_services_whose_clocks_are_hours_apart_are_one_set(services: list[httpx.Client]) -> None:
    """SCALE-01: a page is asked for at the other one each time, while both store more."""
    for number in range(40):
        assert services[number % 2].post("/Task", json=task(number)).status_code == 201
    over = threading.Event()

    def store_more(at: int) -> None:
        for number in range(1_000 + at, 9_000, 2):
            if over.is_set():
                return
            assert services[at].post("/Task", json=task(number)).status_code == 201

    with ThreadPoolExecutor(2) as threads:
        storing = [threads.submit(store_more, at) for at in range(2)]
        found, asked = list[str](), 0
        path: str | None = "/Task?_count=7"
        try:
            wanted = services[0].get("/Task?_count=0").json()["total"]
            while path:
                page = services[asked % 2].get(path).json()
                found += [each["resource"]["id"] for each in page["entry"]]
                links = {link["relation"]: link["url"] for link in page["link"]}
                total, path, asked = page["total"], links.get("next"), asked + 1
        finally:
            over.set()
        for each in storing:
            each.result()
    assert len(found) == len(set(found)) == total >= wanted >= 40


def test_versions_follow_one_another_and_a_condition_holds_whatever_the_clocks_say(
    services: list[httpx.Client],
) -> None:
    """SCALE-01: a client that knows an older version changes nothing."""
    ahead, behind = services
    path = ahead.post("/Task", json=task(1)).headers["location"].partition("/Task")[2]
    times = list[datetime]()
    for changing, other in ((behind, ahead), (ahead, behind), (behind, ahead)):
        before = other.get(f"/Task{path}").headers["last-modified"]
        times.append(parsedate_to_datetime(before))
        for client, status in ((changing, 200), (other, 412)):
            headers, body = {"if-unmodified-since": before}, task(1) | {"status": "completed"}
            assert client.put(f"/Task{path}", json=body, headers=headers).status_code == status
            time.sleep(1.1)
    assert times == sorted(set(times))
    assert len(ahead.get(f"/Task{path}/_history").json()["entry"]) == 4


def test_of_two_simultaneous_creates_under_one_condition_one_is_made(services: list[httpx.Client]) -> None:
    """SCALE-01"""
    with ThreadPoolExecutor(2) as threads:
        for number in range(100, 120):
            headers = {"if-none-exist": f"identifier=urn:test|{number}"}
            asked = [threads.submit(each.post, "/Task", json=task(number), headers=headers) for each in services]
            assert sorted(each.result().status_code for each in asked) == [200, 201]
