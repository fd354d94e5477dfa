"""The steps of one run on several hosts without a shared disk, by Celery: what they need is lost in a load.

That is the host of a step, its process, the host of the code server, Redis, or Dagster's storage.
"""

import json
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from tests.faults.dagster_deployment import Dagster, deployment
from tests.support.commands import resources
from tests.support.hosts import CAN, LACKING, Host
from tests.support.payers import paid, payments
from tests.support.standing import until

NEEDED = {"obstore": "cluster", "dagster_postgres": "cluster", "dagster_celery": "celery"}
"""Modules that other processes import, and the extra of each: here they would cost every run of tests seconds."""
REDIS = shutil.which("redis-server")
pytestmark = [
    pytest.mark.long,
    *(
        pytest.mark.skipif(find_spec(name) is None, reason=f"the extra `{of}` is not installed")
        for name, of in NEEDED.items()
    ),
    pytest.mark.skipif(not CAN, reason=LACKING),
    pytest.mark.skipif(REDIS is None, reason="the program redis-server is not installed"),
]
PATIENTS, ROWS = 100, 6_000
STEP_SECONDS = 30
"""After which a step of a silent worker goes to another."""
PAUSE_SECONDS = 15.0
"""For which Redis is away."""


class Redis:
    """A Redis that can be killed, and started again. is_kept: with what it had."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._folder = folder
        self.start()

    def start(self, is_kept: bool = True) -> None:
        if not is_kept:
            shutil.rmtree(self._folder / "appendonlydir")
        kept = ["--appendonly", "yes", "--save", "", "--dir", str(self._folder)]
        command = [str(REDIS), "--port", str(self.port), "--bind", "127.0.0.1", *kept]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self._server.kill()
        self._server.wait()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    (folder := tmp_path / "redis").mkdir()
    server = Redis(folder)
    yield server
    server.kill()


@pytest.fixture
def dagster(postgres, redis: Redis, tmp_path: Path) -> Iterator[Dagster]:
    more = {
        "CHARTFERRY_EXECUTOR": "celery",
        "CHARTFERRY_STEP_SECONDS": str(STEP_SECONDS),
        "CHARTFERRY_WORKERS": "2",
        "CHARTFERRY_REQUESTS_PER_SECOND": "1",
    }
    with deployment(postgres, tmp_path, PATIENTS, more, {"CHARTFERRY_BROKER": redis.port}) as made:
        yield made


class Load:
    """An import of one file by two workers of Celery. first: the host of code server, pages and daemon."""

    def __init__(self, dagster: Dagster) -> None:
        self.dagster, self._began = dagster, 0.0
        text, self._source = payments("a", ROWS, PATIENTS, random.Random(7))
        self._export = text.encode()
        self.first, self.hosts = dagster.host(), [dagster.host(), dagster.host()]
        self.first.takes(dagster.address)
        self.code_server = dagster.code_server(self.first)
        until(dagster.listens, "the code server")  # it makes Dagster's tables
        dagster.pages_and_daemon(self.first)
        self.workers = dict[str, "subprocess.Popen[Any]"]()

    def begin(self) -> None:
        self.workers = {host.name: worker(self.dagster, host) for host in self.hosts}
        self.dagster.bucket.put("exports/payments-a.csv", self._export, None, None)

    @classmethod
    def in_its_middle(cls, dagster: Dagster) -> Self:
        load = cls(dagster)
        load.begin()
        until(lambda: dagster.created() > 500, "the load")
        load.is_shared()
        return load

    def is_shared(self) -> None:
        """Wait until parts are loaded on two hosts."""
        parts = "SELECT count(DISTINCT machine) FROM part WHERE owner <> ''"
        until(lambda: int(self.dagster.asked(parts)) == 2, "parts that are loaded on two hosts", pause=0.1)

    def host_of(self, step: str) -> Host:
        steps = where(self.dagster)
        assert steps["hold[1]"] != steps["join[2]"]
        self.is_shared()  # neither has just ended its part
        return next(host for host in self.hosts if host.name == steps[step])

    def goes_on(self) -> None:
        """Assert that the fault came while the step was running."""
        self._began = time.monotonic()
        assert 500 < self.dagster.created() < ROWS

    def ends_well(self, left: Host, pages: Host | None = None) -> None:
        """Each payment is there once, and ledger and target agree. left: a host with a worker."""
        dagster, pages = self.dagster, pages or self.first
        until(lambda: dagster.created() == ROWS, "the load that goes on", 600)
        loaded = time.monotonic() - self._began
        until(lambda: "SUCCESS" in dagster.runs(pages), "the run's end", 600)
        print(f"all rows after {loaded:.0f} s, and the run's end after {time.monotonic() - self._began:.0f} s")
        assert dagster.asked("SELECT state FROM batch") == "finished"
        assert dagster.asked("SELECT created + adopted FROM batch") == ROWS
        assert Counter(paid(resources(dagster.client, "PaymentNotice"))) == self._source
        assert verified(dagster, left) == []


def worker(dagster: Dagster, host: Host) -> "subprocess.Popen[Any]":
    """Start a worker of Celery on a host."""
    app = "tests.support.few_rows_a_part"
    return dagster.start(
        host, sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO", "-n", f"{host.name}@%h"
    )


def where(dagster: Dagster) -> dict[str, str]:
    """Return the steps that were begun, and the host of each."""
    query = "SELECT event FROM event_logs WHERE event LIKE '%in celery worker%' ORDER BY id"
    events = [event for (event,) in dagster.told(query)]
    found = [(re.search(r"Executing steps (\S+) in celery", each), re.search(r"(\w+)@", each)) for each in events]
    return {step[1].rpartition("__")[2]: host[1] for step, host in found if step and host}


@pytest.mark.parametrize("killed", ["join[2]", "hold[1]"], ids=["that joins", "that holds the target"])
def test_a_host_that_is_killed_while_it_makes_a_step_is_done_without(dagster: Dagster, killed: str) -> None:
    """SCALE-02, SCALE-03: the steps of one run load its parts on two hosts, and every payment is made once."""
    load = Load.in_its_middle(dagster)
    lost = load.host_of(killed)
    load.workers[lost.name].kill()
    load.workers[lost.name].wait()
    lost.loses_disk()
    load.goes_on()
    load.ends_well(next(host for host in load.hosts if host is not lost))
    assert "FAILURE" not in dagster.runs(load.first)


def test_a_step_whose_process_is_killed_is_made_again(dagster: Dagster) -> None:
    """SCALE-02, SCALE-03: by its worker, which lives on."""
    load = Load.in_its_middle(dagster)
    host = load.host_of("hold[1]")
    step_of(load.workers[host.name]).kill()
    load.goes_on()
    load.ends_well(host)
    assert "FAILURE" not in dagster.runs(load.first)


def step_of(started: "subprocess.Popen[Any]") -> psutil.Process:
    """The process in which a worker makes a step."""
    below = psutil.Process(started.pid).children(recursive=True)
    programs = [each for each in below if "celery" in each.cmdline()]
    return next(each for each in programs if each.ppid() in {parent.pid for parent in programs})


def test_the_host_of_the_code_server_is_replaced_by_one_with_an_empty_disk(dagster: Dagster) -> None:
    """SCALE-03: steps go on without it, and the run that is made again finds what they have done."""
    load, second = Load.in_its_middle(dagster), dagster.host()
    load.code_server.kill()
    load.code_server.wait()
    second.takes(dagster.address, load.first)
    load.first.forgets_neighbours()
    dagster.code_server(second)
    load.goes_on()
    load.ends_well(load.hosts[0])
    assert dagster.runs(load.first).count("FAILURE") == 1


@pytest.mark.parametrize("is_kept", [True, False], ids=["with what it kept", "empty"])
def test_a_redis_that_is_lost_and_started_again_holds_up_no_run(dagster: Dagster, redis: Redis, is_kept: bool) -> None:
    """SCALE-03: where it kept nothing, steps are handed out again."""
    load = Load.in_its_middle(dagster)
    redis.kill()
    load.goes_on()
    time.sleep(PAUSE_SECONDS)
    redis.start(is_kept)
    load.ends_well(load.hosts[0])
    assert "FAILURE" not in dagster.runs(load.first)


def test_steps_that_could_not_be_begun_while_the_storage_was_away_are_handed_out_again(dagster: Dagster) -> None:
    """SCALE-03: that of Dagster, which the run itself still reaches."""
    load = Load(dagster)
    port = int(dagster.environ["DAGSTER_POSTGRES_URL"].partition("@")[2].partition(":")[2].partition("/")[0])
    of_workers = dagster.network.serve(path=dagster.network.served[port])
    dagster.environ["DAGSTER_POSTGRES_URL"] = dagster.environ["DAGSTER_POSTGRES_URL"].replace(
        f":{port}/", f":{of_workers}/"
    )
    dagster.network.away.add(of_workers)
    load.begin()
    until(lambda: dagster.told("SELECT run_id FROM runs WHERE status = 'STARTED'"), "the run")
    time.sleep(PAUSE_SECONDS)
    dagster.network.away.clear()
    load.ends_well(load.hosts[0])
    assert "FAILURE" not in dagster.runs(load.first)


def verified(dagster: Dagster, host: Host) -> Any:
    """Return the findings of `verify` on a host."""
    code = "import sys; from pipelines.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--home", str(host.path / "home"), "verify", "--insecure", "--json"]
    environ = dagster.environ | {"CHARTFERRY_REQUESTS_PER_SECOND": ""}
    done = host.start(command, environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    out, _ = done.communicate(timeout=240)
    assert done.returncode == 0, out
    return json.loads(out[out.index("{") :])["differences"]
