"""Celery steps over Redis: a step whose worker gives no sign of life for some time goes to another worker.

By Celery's own rule, a step goes to another worker if it takes longer than a limit, so the limit must be longer than
any load. Here each worker reports its steps to Redis regularly, so that the limit is one of silence, by the clock of
Redis. A thread of the worker reports them, not the channel that brought the step. So a step is kept while its worker
waits for it to end before stopping, or after the worker lost the channel's connection. Celery would give it away in
both cases.
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
"""The pause between a worker's reports of its steps; equal to Celery's pause between looks at other workers' steps."""
ANSWER_SECONDS = 5.0
"""The longest wait for Redis while reporting. Without it, a dead connection would silence a worker for ever."""
AWAY = (OperationalError, *Transport.connection_errors, *Transport.channel_errors)


class SignsOfLife(QoS):
    """The messages that a channel holds unfinished. Redis stores when each step last gave a sign of life."""

    def append(self, message: Any, delivery_tag: Any) -> None:
        super().append(message, delivery_tag)  # type: ignore[no-untyped-call]
        with self.channel.conn_or_acquire() as client:
            tell(client, self.unacked_index_key, [delivery_tag])

    def can_consume(self) -> bool:
        """True if a step can be taken. A new channel does not know of a step that is running since before it."""
        return bool(super().can_consume()) and not state.active_requests  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Give a step back. A closed channel would lose it, so its step is left to be given away for its silence."""
        if not (requeue and self.channel.closed):
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]

    def restore_unacked(self, client: Any = None) -> None:
        """Give back the messages of this channel when it closes, except for steps that are still running."""
        going_on = {each.message.delivery_tag for each in tuple(state.active_requests)}
        # Later work of a closed channel, such as reporting an end, uses the pool that this creates.
        with self.channel.conn_or_acquire(client) as acquired:
            for tag in self._delivered.keys() - going_on:
                self.restore_by_tag(tag, acquired)  # type: ignore[no-untyped-call]
        self._delivered.clear()

    def restore_visible(self, *_: Any, num: int | None = None, **__: Any) -> None:
        """Give back steps that were silent for too long; called every 10 s."""
        with self.channel.conn_or_acquire() as client:
            silent_since = now_of(client) - self.visibility_timeout
            for tag in client.zrangebyscore(self.unacked_index_key, "-inf", silent_since, start=0, num=num or 10):
                # If another worker does it at the same moment, one of the two finds nothing.
                self.restore_by_tag(tag, client)  # type: ignore[no-untyped-call]


class StepChannel(Channel):
    """A channel that never waits for a message."""

    QoS = SignsOfLife

    def _receive_one(self, c: Any) -> Any:
        """Read a message for all workers, if there is one.

        The loop identifies connections by file number. The number of a connection that it dropped may now belong to
        another one. Reading from that would wait for ever, and no step would be taken any more.
        """
        if not (c.connection and c.connection.is_connected and c.connection.can_read(timeout=0)):
            raise Empty
        return super()._receive_one(c)  # type: ignore[no-untyped-call]


def now_of(client: Any) -> float:
    """Return the time by the clock of Redis."""
    seconds, micros = client.time()
    return float(seconds + micros / 1e6)


def tell(client: Any, index: str, tags: Iterable[str]) -> None:
    """Write the present time at steps. A step that ended or was given back is not added: it would stay for ever."""
    if told := dict.fromkeys(tags, now_of(client)):
        client.zadd(index, told, xx=True)


class StepTransport(Transport):
    """The Redis transport, with channels whose steps give signs of life."""

    Channel = StepChannel


def watch_silence() -> None:
    """Make the workers of this program give signs of life."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:{StepTransport.__name__}"))
    worker_ready.connect(_begin_to_tell)


def _begin_to_tell(sender: Any, **_: Any) -> None:
    if sender.connection.transport.driver_type == "redis":
        threading.Thread(target=_tell_always, args=(sender.app,), name="signs of life", daemon=True).start()


def _tell_always(app: Any) -> None:
    """Report the steps regularly, over one connection as long as it lasts.

    Celery's loop identifies connections by file number. A new connection for each report could get the number of one
    that the loop has just dropped, and the loop would wait for ever for messages on it.
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
    """Report the steps of this process to Redis. Raises one of `AWAY`."""
    tags = [each.message.delivery_tag for each in list(state.requests.values())]  # the main thread changes it meanwhile
    if tags:
        tell(channel.client, channel.unacked_index_key, tags)
