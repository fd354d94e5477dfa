"""A proxy before PostgreSQL, for tests and benchmarks: it counts exchanges, adds latency, and loses connections.

An exchange is a wait of the client for the server: it ends with `ReadyForQuery`, or with the server's consent to COPY.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

_HEAD = 5
_ENDS = b"ZGH"
"""Types of the server's messages that a client waits for: ReadyForQuery, CopyInResponse, CopyOutResponse."""


class Proxy:
    """A proxy with a socket in a folder, which passes connections on to a server's socket."""

    def __init__(self, server: Path, folder: Path, latency: float) -> None:
        """server: the server's socket. latency: seconds that a message and its answer take together."""
        self.folder = folder
        self.exchanges = 0
        self.before_answer: Callable[[bytes], None] = lambda _: None
        """Called with what the server sends, before it is passed on. May close connections."""
        self.watch: Callable[[int, bool, bytes], None] = lambda *_: None
        """Called, for a connection, with what the server is given (True) just now, or has sent."""
        self._server, self._latency = server, latency
        self._open: set[socket.socket] = set()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / server.name))
        self._listening.listen(200)
        self._thread(self._accept)

    def cut(self) -> None:
        """Close all connections."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(str(self._server))
                except OSError:
                    client.close()
                    continue
                self._open |= {client, server}
                answers = _Answers(self, client.fileno())
                self._pass(client, server, lambda _: None, answers.ask)
                self._pass(server, client, answers.see)

    def _pass(
        self,
        source: socket.socket,
        target: socket.socket,
        see: Callable[[bytes], None],
        sent: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """Pass on bytes after half of the latency. see and sent: called with bytes that arrive, or are passed on."""
        under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def receive() -> None:
            with suppress(OSError):
                while data := source.recv(1 << 16):
                    see(data)
                    under_way.put((time.monotonic() + self._latency / 2, data))
            under_way.put((0, b""))

        def send() -> None:
            with suppress(OSError):
                while True:
                    due, data = under_way.get()
                    if not data:
                        break
                    if (wait := due - time.monotonic()) > 0:
                        time.sleep(wait)
                    sent(data)
                    target.sendall(data)
            for one in (source, target):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
                self._open.discard(one)

        self._thread(receive)
        self._thread(send)

    @staticmethod
    def _thread(work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()


class _Answers:
    """The messages of one server connection in their order."""

    def __init__(self, proxy: Proxy, connection: int) -> None:
        self._proxy, self._connection, self._rest, self._skip = proxy, connection, b"", 0

    def ask(self, data: bytes) -> None:
        self._proxy.watch(self._connection, True, data)

    def see(self, data: bytes) -> None:
        self._proxy.watch(self._connection, False, data)
        self._proxy.before_answer(data)
        rest = self._rest + data
        at = self._skip
        while at + _HEAD <= len(rest):
            self._proxy.exchanges += rest[at] in _ENDS
            at += 1 + int.from_bytes(rest[at + 1 : at + _HEAD])
        self._rest, self._skip = rest[at:], max(0, at - len(rest))


@contextmanager
def proxied(server: Path, folder: Path, latency: float = 0) -> Iterator[Proxy]:
    """Run a proxy before the server with this socket, until the block ends."""
    proxy = Proxy(server, folder, latency)
    try:
        yield proxy
    finally:
        proxy.close()
