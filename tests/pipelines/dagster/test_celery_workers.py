"""Workers of Celery: a step that is being made is given to no other, whatever its worker is asked or loses."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.standing import until

pytest.importorskip("dagster_celery", reason="the extra `celery` is not installed")
from celery import Celery
from redis import Redis

from tests.support.brokers import redis_server

pytestmark = pytest.mark.long  # what a worker does that loses its connection is in test_celery_steps.py, too
SILENCE_SECONDS = 2
"""`visibility_timeout` of `tests.support.waiting_steps`."""


class Workers:
    """Two workers with steps that last until they are let end."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.client = Redis(unix_socket_path=broker.partition("://")[2])
        self._app, self._folder, self._broker = Celery(broker=broker, backend=broker), folder, broker
        self.names = ["one", "two"]
        self._started = {name: self._start(name) for name in self.names}

    def _start(self, name: str) -> "subprocess.Popen[Any]":
        app = "tests.support.waiting_steps"
        alone = ("--without-mingle", "--without-gossip", "-n", f"{name}@here")
        command = [sys.executable, "-m", "celery", "-A", app, "worker", *alone]
        environ = os.environ | {"CHARTFERRY_BROKER": self._broker, "WORKER": name}
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def send(self, step: str) -> Any:
        return self._app.send_task("wait", [str(self._folder), step])

    def of(self, step: str) -> list[str]:
        """The workers that began a step."""
        path = self._folder / f"{step}.begun"
        return path.read_text().split() if path.exists() else []

    def began(self, step: str) -> str:
        return str(until(lambda: self.of(step), "a worker", 60, 0.1)[0])

    def let_end(self, step: str) -> None:
        (self._folder / f"{step}.end").touch()

    def ask_to_stop(self, name: str) -> None:
        self._started[name].send_signal(signal.SIGTERM)

    def stopped(self, name: str) -> bool:
        return self._started[name].wait(60) == 0

    def kill(self) -> None:
        for each in self._started.values():
            each.kill()
            each.wait()

    def nothing_left(self) -> bool:
        return not self.client.hlen("unacked") and not self.client.zcard("unacked_index")


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with redis_server(tmp_path) as broker:
        made = Workers(broker, tmp_path)
        yield made
        made.kill()


def test_a_step_is_made_once_though_its_worker_loses_its_connections_and_is_asked_to_stop(workers: Workers) -> None:
    """Meanwhile the next step goes to the worker that has none."""
    first = workers.send("first")
    busy = workers.began("first")
    [idle] = {*workers.names} - {busy}
    workers.client.client_kill_filter(_type="normal", skipme=True)
    workers.client.client_kill_filter(_type="pubsub", skipme=True)
    time.sleep(SILENCE_SECONDS)
    second = workers.send("second")
    assert workers.began("second") == idle
    workers.ask_to_stop(busy)
    time.sleep(SILENCE_SECONDS * 1.5)
    workers.let_end("second")
    until(second.ready, "the second step's end", 60, 0.1)
    time.sleep(SILENCE_SECONDS)
    assert workers.of("first") == [busy]
    workers.let_end("first")
    assert workers.stopped(busy)
    assert first.get(timeout=60) == "first"
    until(workers.nothing_left, "all steps' ends at the broker", 30, 0.1)
    assert workers.of("first") == [busy]
    assert workers.of("second") == [idle]


def test_workers_outlive_a_redis_that_is_a_replica_for_a_while(workers: Workers) -> None:
    """As where a failover leaves the connections that there were: each worker that waited for a step ended."""
    first = workers.send("first")
    busy = workers.began("first")
    [idle] = {*workers.names} - {busy}
    workers.client.replicaof("127.0.0.1", "1")
    time.sleep(SILENCE_SECONDS / 2)
    workers.client.replicaof("NO", "ONE")
    second = workers.send("second")
    assert workers.began("second") == idle
    for step in ("first", "second"):
        workers.let_end(step)
    assert [each.get(timeout=60) for each in (first, second)] == ["first", "second"]
    assert workers.of("first") == [busy]
