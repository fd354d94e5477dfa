"""Steps that workers of Celery have from Redis: one whose worker gave no sign of life for a while goes to another.

By Celery's own rule a step goes to another worker once it takes longer than a limit, which must then be longer than any
load. Here each worker tells Redis of its steps again and again, so the limit is one of silence, by the clock of Redis.
"""

from typing import Any

from kombu.transport.redis import Channel, QoS

BEAT_SECONDS = 10
"""Celery's own pause between the looks of a worker at the steps of others; see `unacked_restore_interval`."""


class SignsOfLife(QoS):
    """What a worker has from the broker and has not ended. In Redis each step has the time of its last sign of life."""

    def append(self, message: Any, delivery_tag: Any) -> None:
        super().append(message, delivery_tag)  # type: ignore[no-untyped-call]
        with self.channel.conn_or_acquire() as client:
            self._tell(client)

    def restore_visible(self, *_: Any, num: int | None = None, **__: Any) -> None:
        """Tell of what is under way here, and give back what was silent for too long; called every 10 s."""
        with self.channel.conn_or_acquire() as client:
            silent_since = self._tell(client) - self.visibility_timeout
            for tag in client.zrangebyscore(self.unacked_index_key, "-inf", silent_since, start=0, num=num or 10):
                # Where another worker does it too, one of them finds nothing.
                self.restore_by_tag(tag, client)  # type: ignore[no-untyped-call]

    def _tell(self, client: Any) -> float:
        """Write the time, which is that of Redis, at all that is under way here. Return it."""
        seconds, micros = client.time()
        now = seconds + micros / 1e6
        if here := dict.fromkeys(self._delivered, now):
            client.zadd(self.unacked_index_key, here, xx=True)  # one that was given to another worker is left to it
        return float(now)


def watch_silence() -> None:
    """Let the workers of this program give signs of life."""
    Channel.QoS = SignsOfLife
