"""The time in which a request has to be taken and its answer be whole: its connection is not used after that."""

import threading
import time
from typing import Any

import httpx

from pipelines.client.replies import Late

PIECE = 64 << 10
"""Bytes of a request that are given to a connection at once: it takes them in many steps, each with a whole timeout."""
_of_thread = threading.local()


def begin(seconds: float) -> None:
    """Give what this thread sends, and the answers that it reads, so many seconds from now on, together."""
    _of_thread.seconds, _of_thread.ends = seconds, time.monotonic() + seconds


def bound(http: httpx.Client) -> None:
    """Let the connections of a client send and read nothing after the time that `begin` gave: they raise `Late` then.

    httpx itself has no such bound: its timeout begins anew with each byte, and its transport takes no other network.
    """
    for transport in (http._transport, *http._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool: Any = transport._pool
            pool._network_backend = _Network(pool._network_backend)


class _Network:
    """httpcore's network, with connections that are used within a time."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.connect_unix_socket, self.sleep = network.connect_unix_socket, network.sleep

    def connect_tcp(self, *given: Any, **named: Any) -> Any:
        return _Connection(self._network.connect_tcp(*given, **named))


class _Connection:
    """One connection. Only its reads and writes differ from what it is made of."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.close, self.get_extra_info = stream.close, stream.get_extra_info

    def start_tls(self, *given: Any, **named: Any) -> Any:
        return _Connection(self._stream.start_tls(*given, **named))

    def write(self, content: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(content), PIECE):
            _check("it did not take the request")
            self._stream.write(content[start : start + PIECE], timeout)

    def read(self, most: int, timeout: float | None = None) -> bytes:
        _check("its answer did not end")
        found: bytes = self._stream.read(most, timeout)
        return found


def _check(late: str) -> None:
    """Raise `Late` if this thread has no time left. late: says of the target what it did not do."""
    if time.monotonic() > _of_thread.ends:
        raise Late(f"{late} within {_of_thread.seconds:g} seconds")
