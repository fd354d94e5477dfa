"""The time in which an answer has to be whole, its head too: no read of its connection begins after that."""

import threading
import time
from typing import Any

import httpx

from pipelines.client.replies import Late

_of_thread = threading.local()


def begin(seconds: float) -> None:
    """Give the answers that this thread reads from now on so many seconds, together."""
    _of_thread.seconds, _of_thread.ends = seconds, time.monotonic() + seconds


def bound_reads(http: httpx.Client) -> None:
    """Let the connections of a client begin no read after the time that `begin` gave: they raise `Late` then.

    httpx itself has no such bound: its timeout begins anew with each byte, and its transport takes no other network.
    """
    for transport in (http._transport, *http._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool: Any = transport._pool
            pool._network_backend = _Network(pool._network_backend)


class _Network:
    """httpcore's network, with connections that are read within a time."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.connect_unix_socket, self.sleep = network.connect_unix_socket, network.sleep

    def connect_tcp(self, *given: Any, **named: Any) -> Any:
        return _Connection(self._network.connect_tcp(*given, **named))


class _Connection:
    """One connection. Only its reads differ from what it is made of."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.write, self.close, self.get_extra_info = stream.write, stream.close, stream.get_extra_info

    def start_tls(self, *given: Any, **named: Any) -> Any:
        return _Connection(self._stream.start_tls(*given, **named))

    def read(self, most: int, timeout: float | None = None) -> bytes:
        if time.monotonic() > _of_thread.ends:
            raise Late(f"its answer did not end within {_of_thread.seconds:g} seconds")
        found: bytes = self._stream.read(most, timeout)
        return found
