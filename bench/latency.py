"""A TCP proxy that passes on what clients send with a delay, like a longer way to the server.

usage: latency.py [MS]
Any delay beyond the one asked for would be counted against the service. Run as a program, it prints its own lateness.
"""

import asyncio
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from selectors import SelectSelector


@contextmanager
def later(port: int, seconds: float) -> Iterator[int]:
    """Start a proxy before a port of this machine. Yield its port. Answers are not delayed."""
    ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def run() -> None:
        with asyncio.Runner(loop_factory=_exact_loop) as runner:
            runner.run(_serve(port, seconds, ready))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    own_port, loop, stop = ready.result()
    try:
        yield own_port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _exact_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop with timers exact to microseconds. With epoll, the default, they count milliseconds."""
    return asyncio.SelectorEventLoop(SelectSelector())


async def _serve(
    port: int, seconds: float, ready: "Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]]"
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    clients: set[_Client] = set()
    server = await loop.create_server(lambda: _Client(loop, port, seconds, clients), "127.0.0.1", 0)
    ready.set_result((server.sockets[0].getsockname()[1], loop, stop))
    await stop.wait()
    server.close()
    for client in list(clients):
        client.abort()
    await asyncio.sleep(0)


class _Client(asyncio.Protocol):
    """A client's connection. Every part of what the client sends is passed on after the same delay, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, seconds: float, among: "set[_Client]") -> None:
        self._loop, self._port, self._seconds, self._among = loop, port, seconds, among
        self._parts: deque[bytes] = deque()
        self._to: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._own = transport
        self._own.pause_reading()
        self._among.add(self)
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            self._to, _ = await self._loop.create_connection(lambda: _Server(self._own), "127.0.0.1", self._port)
        except OSError:
            self._own.abort()
            return
        self._own.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._loop.call_later(self._seconds, self._hand_on)

    def eof_received(self) -> bool:
        self.data_received(b"")
        return True

    def connection_lost(self, _: Exception | None) -> None:
        self._loop.call_later(self._seconds, self._end)

    def _hand_on(self) -> None:
        part = self._parts.popleft()
        if self._to is None or self._to.is_closing():
            return
        if part:
            self._to.write(part)
        else:
            self._to.write_eof()

    def _end(self) -> None:
        self._among.discard(self)
        if self._to:
            self._to.close()

    def abort(self) -> None:
        self._own.abort()
        if self._to:
            self._to.abort()


class _Server(asyncio.Protocol):
    """The connection to the server that belongs to a client's. What the server sends is passed on without delay."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._client.close()


# --- How exact it is --------------------------------------------------------------------------------


PART = 1_000
"""Bytes of one part: the size of a row."""


def lateness(seconds: float, times: int = 200, apart: float = 0.0067) -> list[float]:
    """Return how many seconds later than asked each part arrives, with as many parts under way as in a load."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        later(listening.getsockname()[1], seconds) as port,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, _ = listening.accept()
        said = [0.0] * times

        def say() -> None:
            for at in range(times):
                said[at] = time.perf_counter()
                client.sendall(bytes(PART))
                time.sleep(apart)

        talking = threading.Thread(target=say)
        talking.start()
        with server:
            heard = [_heard(server) for _ in range(times)]
        talking.join()
    return sorted(at - since - seconds for at, since in zip(heard, said, strict=True))


def _heard(server: socket.socket) -> float:
    left = PART
    while left:
        left -= len(server.recv(left))
    return time.perf_counter()


def main() -> None:
    seconds = float(sys.argv[1] if len(sys.argv) > 1 else 50) / 1000
    late = [1000 * one for one in lateness(seconds)]
    middle, most, least = late[len(late) // 2], late[len(late) * 95 // 100], late[0]
    print(f"late beyond {1000 * seconds:g} ms: {middle:.2f} ms, 95 of 100 below {most:.2f}, none below {least:.2f}")


if __name__ == "__main__":
    main()
