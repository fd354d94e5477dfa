"""Steps that Celery hands out: one whose broker or worker fails is handed out again, and never waited for for ever."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("dagster_celery", reason="the extra `celery` is not installed")
from celery import Celery
from celery.exceptions import TaskRevokedError
from celery.worker import state
from kombu.connection import Connection
from kombu.entity import Queue
from redis import Redis

from pipelines.dagster import celery_broker, celery_steps
from pipelines.dagster.celery_broker import SignsOfLife, StepChannel, tell_of_requests
from pipelines.dagster.celery_steps import NotBegun, SentStep
from tests.support.brokers import redis_server
from tests.support.standing import until

STEPS = Queue("steps")


class Broker:
    """An app of Celery whose store of results forgets, is away, and has what steps come to."""

    connection_errors = (ConnectionError,)

    def __init__(self) -> None:
        self.marks: set[str] = set()
        self.is_away = False
        self.results: list[Any] = []
        self.backend, self.client = self, self
        self.conf = SimpleNamespace(broker_url="redis://one", result_backend="redis://other")

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
    """The result of a step; None while it is under way."""

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


def sent(broker: Broker) -> SentStep:
    return SentStep(broker, "a step", broker.submit, "steps")


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
    broker.is_away = True
    assert step.get() == []  # Celery's loop has no end where a result is ready and cannot be had


def test_a_step_that_could_not_begin_is_handed_over_again_and_given_up_without_the_text_of_its_error(
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
    with pytest.raises(
        NotBegun, match=r"^a step could not be started, or its end not reported, in 3 tries \(OSError\); see the logs"
    ):
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
    with redis_server(tmp_path) as address:
        yield address


def test_a_redis_that_is_a_replica_for_a_while_is_waited_for(redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its address leads to one that is not promoted yet: the first refusal of a write ended the run."""
    monkeypatch.setattr(celery_steps, "PAUSE_SECONDS", 0.0)
    app, server = Celery(broker=redis, backend=redis), Redis(unix_socket_path=redis.removeprefix("redis+socket://"))
    with app, closing(server):
        step = SentStep(app, "a step", lambda: app.send_task("a step", queue="steps"), "steps")
        server.replicaof("127.0.0.1", "1")
        assert [step.ready() for _ in range(3)] == [False] * 3
        server.replicaof("NO", "ONE")
        assert not step.ready()
        assert server.llen("steps") == 1
        server.replicaof("127.0.0.1", "1")
        with pytest.raises(
            NotBegun, match=r"^a step could not be started, or its end not reported, in 31 tries \(ReadOnlyError\)"
        ):
            [step.ready() for _ in range(celery_steps.TRIES)]
        step.revoke()


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Let this process make the step of a message, as a worker does."""
    monkeypatch.setattr("kombu.transport.redis.Channel.QoS", SignsOfLife)
    requests = list[Any]()

    def begin(message: Any) -> None:
        requests.append(request := Request(message))
        state.requests[message.delivery_tag] = request
        state.active_requests.add(request)

    yield begin
    state.reset_state()


class Request:
    """A step that a worker makes."""

    def __init__(self, message: Any) -> None:
        self.message = message


def test_a_step_goes_to_another_worker_after_a_silence_whatever_the_clocks_say(
    redis: str, at_work: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's own rule is a fixed time, by the clocks of the workers."""
    monkeypatch.setattr("kombu.transport.redis.time", lambda: time.time() - 7200)
    options = {"visibility_timeout": 1.0}
    with Connection(redis, transport_options=options) as one, Connection(redis, transport_options=options) as other:
        message = step_from(one)
        at_work(message)
        theirs = other.default_channel
        for _ in range(3):
            time.sleep(0.4)
            tell_of_requests(theirs)
            theirs.qos.restore_visible()
            assert STEPS(theirs).get() is None
        time.sleep(1.1)
        theirs.qos.restore_visible()
        tell_of_requests(theirs)  # comes back, and puts nothing at what was given back
        assert theirs.client.zcard(theirs.unacked_index_key) == 0
        again = STEPS(theirs).get()
        state.reset_state()
        assert again is not None
        assert again.decode() == {"step": 1}


def test_heartbeats_of_a_step_share_one_connection(redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a file that is closed and opened again could be that of a connection of Celery's own loop."""
    beats = list[Any]()
    monkeypatch.setattr(celery_broker, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(celery_broker, "tell_of_requests", lambda channel: beats.append(channel.client.ping()))
    with Connection(redis) as one:
        client = one.default_channel.client
        client.ping()
        before = client.info("stats")["total_connections_received"]
        threading.Thread(target=celery_broker._tell_always, args=(Celery(broker=redis),), daemon=True).start()
        until(lambda: len(beats) > 10, "signs of life")
        assert client.info("stats")["total_connections_received"] <= before + 2


def test_a_channel_does_not_wait_for_news_that_are_not_there(redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's loop takes the number of a file for that of a connection that it has dropped."""
    monkeypatch.setattr("kombu.transport.redis.Transport.Channel", StepChannel)
    with Connection(redis) as one:
        channel = one.default_channel
        channel.subclient.psubscribe("news")
        until(lambda: channel._receive() or channel.subclient.subscribed, "the subscription")
        waits = threading.Thread(target=channel._receive, daemon=True)
        waits.start()
        waits.join(5)
        assert not waits.is_alive()


def test_a_step_goes_on_where_its_worker_lost_the_connection_and_has_no_other_beside_it(
    redis: str, at_work: Callable[[Any], None]
) -> None:
    with Connection(redis) as one, Connection(redis) as other:
        begun = step_from(one)
        at_work(begun)
        waiting = step_from(one)
        one.default_channel.close()
        again = other.default_channel
        assert not again.qos.can_consume()
        assert again.client.hkeys(again.unacked_key) == [begun.delivery_tag.encode()]
        state.reset_state()
        assert again.qos.can_consume()
        assert STEPS(again).get().delivery_tag == waiting.delivery_tag
        begun.reject(requeue=True)  # its process was killed: a closed channel would drop it
        assert again.client.hexists(again.unacked_key, begun.delivery_tag)


def test_a_step_that_neither_waits_nor_is_with_a_worker_is_handed_over_again(
    redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was on its way to a worker whose connection was dead: its mark is there."""
    monkeypatch.setattr(celery_steps, "LOOK_SECONDS", 0.0)
    app = Celery(broker=redis, backend=redis)
    handed = list[str]()

    def submit() -> Any:
        result = app.send_task("made by nobody", queue=STEPS, priority=5)
        handed.append(result.id)
        return result

    step, redis_client = SentStep(app, "a step", submit, STEPS.name), app.backend.client
    assert [step.ready() for _ in range(4)] == [False] * 4  # it waits
    [name] = redis_client.keys("steps*")
    message = redis_client.rpop(name)
    redis_client.hset("unacked", "a tag", b"[" + message + b"]")
    assert [step.ready() for _ in range(4)] == [False] * 4  # a worker has it
    assert len(handed) == 1
    redis_client.delete("unacked")
    assert not step.ready()  # it may be between both
    assert len(handed) == 1
    assert not step.ready()
    assert len(handed) == 2
    assert redis_client.llen(name) == 1


def step_from(connection: Connection) -> Any:
    """Send a step, and take it."""
    connection.Producer().publish({"step": 1}, routing_key="steps", declare=[STEPS])
    message = STEPS(connection.default_channel).get()
    assert message is not None
    return message
