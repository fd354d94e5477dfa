"""Steps that workers of Celery have from Redis: one whose worker gave no sign of life for a while goes to another.

By Celery's own rule a step goes to another worker once it takes longer than a limit, which must then be longer than any
load. Here each worker tells Redis of its steps again and again, so the limit is one of silence, by the clock of Redis.

A thread tells, not the channel that a step came by: a step goes on while its worker waits for its end to stop, or has
lost that channel with its connection. Celery would have given it back in both cases.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty
from typing import Any

from celery.signals import worker_ready
from celery.worker import state
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, QoS, Transport

BEAT_SECONDS = 10.0
"""How often a worker tells of its steps; Celery's own pause between looks at those of others is the same."""
ANSWER_SECONDS = 5.0
"""For which a sign of life waits for Redis. A connection that went dead unseen would silence a worker for ever."""
AWAY = (OperationalError, *Transport.connection_errors, *Transport.channel_errors)


class SignsOfLife(QoS):
    """The messages that a channel has and has not ended. Redis has when each step last gave a sign of life."""

    def append(self, message: Any, delivery_tag: Any) -> None:
        super().append(message, delivery_tag)  # type: ignore[no-untyped-call]
        with self.channel.conn_or_acquire() as client:
            tell(client, self.unacked_index_key, [delivery_tag])

    def can_consume(self) -> bool:
        """True if a step can be taken. A new channel does not know of one that goes on since before it."""
        return bool(super().can_consume()) and not state.active_requests  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Give a step back. A closed channel knows no queue, and would drop it: it goes to another by its silence."""
        if not (requeue and self.channel.closed):
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]

    def restore_unacked(self, client: Any = None) -> None:
        """Give back what this channel has, as it is closed, but for steps that go on."""
        going_on = {each.message.delivery_tag for each in tuple(state.active_requests)}
        # What a closed channel does later, such as to tell of an end, goes by the pool that this makes.
        with self.channel.conn_or_acquire(client) as acquired:
            for tag in self._delivered.keys() - going_on:
                self.restore_by_tag(tag, acquired)  # type: ignore[no-untyped-call]
        self._delivered.clear()

    def restore_visible(self, *_: Any, num: int | None = None, **__: Any) -> None:
        """Give back what was silent for too long; called every 10 s."""
        with self.channel.conn_or_acquire() as client:
            silent_since = now_of(client) - self.visibility_timeout
            for tag in client.zrangebyscore(self.unacked_index_key, "-inf", silent_since, start=0, num=num or 10):
                # Where another worker does it too, one of them finds nothing.
                self.restore_by_tag(tag, client)  # type: ignore[no-untyped-call]


class StepChannel(Channel):
    """A channel that waits for nothing but what is there."""

    QoS = SignsOfLife

    def _receive_one(self, c: Any) -> Any:
        """Read a message for all workers, if there is one.

        The loop goes by numbers of files. That of a connection which it dropped as stale may be another's by now: to
        read from it then would wait for ever, and no step would be taken any more.
        """
        if not (c.connection and c.connection.is_connected and c.connection.can_read(timeout=0)):
            raise Empty
        return super()._receive_one(c)  # type: ignore[no-untyped-call]


def now_of(client: Any) -> float:
    """Return the time by the clock of Redis."""
    seconds, micros = client.time()
    return float(seconds + micros / 1e6)


def tell(client: Any, index: str, tags: Iterable[str]) -> None:
    """Write the time at steps. One that has ended or was given back is not put there again: it would never go."""
    if told := dict.fromkeys(tags, now_of(client)):
        client.zadd(index, told, xx=True)


class StepTransport(Transport):
    """Redis, by channels whose steps give signs of life."""

    Channel = StepChannel


def watch_silence() -> None:
    """Let the workers of this program give signs of life."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:{StepTransport.__name__}"))
    worker_ready.connect(_begin_to_tell)


def _begin_to_tell(sender: Any, **_: Any) -> None:
    if sender.connection.transport.driver_type == "redis":
        threading.Thread(target=_tell_always, args=(sender.app,), name="signs of life", daemon=True).start()


def _tell_always(app: Any) -> None:
    """Tell again and again, by one connection as long as it lasts.

    Celery's loop knows connections by the numbers of their files: one that is closed and made again for each time could
    get the number of one that the loop has just let go, and the loop would wait for ever for what is not for it.
    """
    limits = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
    while True:
        time.sleep(BEAT_SECONDS)
        with (
            suppress(*AWAY),
            app.connection_for_read(transport_options=limits) as connection,
            connection.channel() as channel,
        ):
            while True:
                tell_of_requests(channel)
                time.sleep(BEAT_SECONDS)


def tell_of_requests(channel: Any) -> None:
    """Tell Redis of what this process has. Raises one of `AWAY`."""
    tags = [each.message.delivery_tag for each in list(state.requests.values())]  # the main thread changes it meanwhile
    if tags:
        tell(channel.client, channel.unacked_index_key, tags)
