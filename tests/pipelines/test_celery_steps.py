"""Steps that Celery hands out: one whose broker or worker fails is handed out again, and never waited for for ever."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.standing import until

pytest.importorskip("dagster_celery", reason="the extra `celery` is not installed")
from celery.exceptions import TaskRevokedError
from kombu.connection import Connection
from kombu.entity import Queue

from pipelines.dagster import celery_steps
from pipelines.dagster.celery_broker import SignsOfLife
from pipelines.dagster.celery_steps import NotBegun, Sent

REDIS = shutil.which("redis-server")


class Broker:
    """An app of Celery whose store of results forgets, is away, and has what steps come to."""

    connection_errors = (ConnectionError,)

    def __init__(self) -> None:
        self.marks: set[str] = set()
        self.is_away = False
        self.results: list[Any] = []
        self.backend, self.client = self, self

    def set(self, name: str, _: str, ex: float) -> None:
        assert ex > 0
        self.marks.add(name)

    def expire(self, name: str, _: float) -> int:
        return int(name in self.marks)

    def submit(self) -> Any:
        self.ask()
        self.results.append(Result(self, str(len(self.results))))
        return self.results[-1]

    def ask(self) -> None:
        if self.is_away:
            raise ConnectionError


class Result:
    """What a step came to: None while it is under way."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.id, self.broker, self.result, self.is_revoked = name, broker, None, False

    def ready(self) -> bool:
        self.broker.ask()
        return self.result is not None

    def failed(self) -> bool:
        return isinstance(self.result, Exception)

    def get(self) -> Any:
        return self.result

    def revoke(self) -> None:
        self.is_revoked = True


@pytest.fixture
def broker() -> Broker:
    return Broker()


def sent(broker: Broker) -> Sent:
    return Sent(broker, "a step", broker.submit)


def test_a_step_that_the_broker_lost_is_handed_over_again_and_either_result_counts(broker: Broker) -> None:
    step = sent(broker)
    assert not step.ready()
    assert len(broker.results) == 1
    broker.marks.clear()
    assert not step.ready()
    assert not step.ready()
    first, _ = broker.results
    first.result = ["its events"]
    assert step.ready()
    assert step.get() == ["its events"]


def test_a_broker_that_is_away_is_waited_for_before_and_after_a_step_was_handed_over(broker: Broker) -> None:
    broker.is_away = True
    step = sent(broker)
    assert not step.ready()
    broker.is_away = False
    assert not step.ready()
    [result] = broker.results
    result.result = []
    broker.is_away = True
    assert not step.ready()
    broker.is_away = False
    assert step.ready()


def test_a_step_that_could_not_be_begun_is_handed_over_again_and_given_up_without_what_the_error_says(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_steps, "TRIES", 2)
    step = sent(broker)
    broker.results[-1].result = OSError("a password")
    assert not step.ready()
    assert len(broker.results) == 1  # the next try has a pause before it
    monkeypatch.setattr(celery_steps, "PAUSE_SECONDS", 0.0)
    step._again_at = 0.0
    assert not step.ready()
    broker.results[-1].result = OSError("a password")
    assert not step.ready()
    broker.results[-1].result = OSError("a password")
    with pytest.raises(NotBegun, match=r"^a step could not be begun, or told of, in 3 tries \(OSError\): see the logs"):
        step.ready()


def test_a_step_that_was_taken_back_and_lost_has_an_end(broker: Broker) -> None:
    """Without one, a run that somebody terminates would not end."""
    step = sent(broker)
    step.revoke()
    assert broker.results[0].is_revoked
    assert not step.ready()  # it may be at work
    broker.marks.clear()
    assert step.ready()
    with pytest.raises(TaskRevokedError):
        step.get()
    assert len(broker.results) == 1


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    if REDIS is None:
        pytest.skip("the program redis-server is not installed")
    path = tmp_path / "redis"
    command = [REDIS, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        yield f"redis+socket://{path}"
        server.terminate()


def test_a_step_goes_to_another_worker_once_its_own_gave_no_sign_of_life_whatever_the_clocks(
    redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Celery's own rule it would go after a time in any case, by the clocks of the workers."""
    monkeypatch.setattr("kombu.transport.redis.Channel.QoS", SignsOfLife)
    monkeypatch.setattr("kombu.transport.redis.time", lambda: time.time() - 7200)
    options = {"visibility_timeout": 1.0}
    with Connection(redis, transport_options=options) as one, Connection(redis, transport_options=options) as other:
        queue = Queue("steps")
        until(lambda: _is_there(one, queue), "Redis")
        one.Producer().publish({"step": 1}, routing_key="steps", declare=[queue])
        ours, theirs = (each.default_channel for each in (one, other))
        message = queue(ours).get()
        assert message is not None
        for _ in range(3):
            time.sleep(0.4)
            ours.qos.restore_visible()
            theirs.qos.restore_visible()
            assert queue(theirs).get() is None
        time.sleep(1.1)
        theirs.qos.restore_visible()
        again = queue(theirs).get()
        assert again is not None
        assert again.decode() == {"step": 1}
        ours.qos.restore_visible()  # comes back, and leaves it to the other
        assert queue(ours).get() is None
        assert theirs.client.hlen(theirs.unacked_key) == 1


def _is_there(connection: Connection, queue: Queue) -> bool:
    try:
        queue(connection.default_channel).declare()
    except (OSError, *connection.connection_errors):
        return False
    return True
