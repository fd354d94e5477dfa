"""A proxy between an importer and its target that does one thing wrong, at a chosen request and moment.

Requests and answers go through it byte for byte. What goes wrong is a `Fault`; what can go wrong is in `MOMENTS`.
"""

import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from urllib.parse import urlsplit

RECORDS = r"/(PaymentNotice|QuestionnaireResponse|Task)"
OPERATIONS = {
    "token": re.compile(r"POST /auth/token "),
    "batch": re.compile(r"POST / "),
    "create": re.compile(rf"POST {RECORDS} "),
    "update": re.compile(rf"PUT {RECORDS}/"),
    "look-up": re.compile(rf"GET {RECORDS}[/?]"),
}
UNAUTHORISED = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnull"
ABORT = struct.pack("ii", 1, 0)
PATIENCE_SECONDS = 60.0


class Message(NamedTuple):
    """One request or answer, as bytes."""

    head: bytes
    body: bytes

    @property
    def whole(self) -> bytes:
        return self.head + self.body

    @property
    def operation(self) -> str | None:
        """Return the operation of a request, as the table names it."""
        line = self.head.split(b"\r\n", 1)[0].decode("latin-1")
        return next((name for name, pattern in OPERATIONS.items() if pattern.match(line)), None)

    def header(self, name: str) -> str | None:
        found = re.search(rf"\r\n{name}: *(.*?)\r\n".encode(), self.head, re.IGNORECASE)
        return found[1].decode("latin-1") if found else None


@dataclass
class Fault:
    """The n-th request of an operation (from 1) goes wrong at a moment; the dice decide the rest."""

    operation: str
    moment: str
    nth: int = 1
    dice: random.Random = field(default_factory=random.Random)
    fired: bool = False


class Exchange(NamedTuple):
    """A request on its way, with the connection that it came by."""

    proxy: "Proxy"
    client: socket.socket
    request: Message
    fault: Fault

    def ask(self) -> Message:
        return self.proxy.ask(self.request)


class Proxy:
    """A proxy on a free port of loopback that passes requests on to the target.

    killed: called at the moment at which a process is to die. expires: the number (from 1) of the request, not counting
    those for tokens, that is answered as if its token had expired. doubled: resources of second deliveries only.
    """

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = (address.hostname, address.port)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._connections: set[socket.socket] = set()
        self._held: list[Message] = []
        self.plan([])

    def plan(self, faults: list[Fault], killed: Callable[[], None] = lambda: None, expires: int | None = None) -> None:
        """Set the faults of the next requests."""
        self.faults, self.killed, self.expires = faults, killed, expires
        self.seen: Counter[str | None] = Counter()
        self.asked = 0
        self.doubled: list[str] = []

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def ask(self, request: Message) -> Message:
        """Return the target's complete answer to a request. Raises `OSError` if there is none."""
        with self.connected() as upstream:
            upstream.sendall(request.whole)
            answer = read_message(upstream)
        if answer is None:
            raise ConnectionError
        return answer

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(self._target, timeout=PATIENCE_SECONDS) as upstream:
            yield upstream

    def hold(self, request: Message) -> None:
        with self._lock:
            self._held.append(request)

    def deliver(self) -> None:
        """Pass on a held request when nobody waits for its answer any more."""
        with self._lock:
            held, self._held = self._held, []
        for request in held:
            with suppress(OSError):
                self.ask(request)

    # -- within

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(client)
            self._start(self._converse, client)

    def _converse(self, client: socket.socket) -> None:
        try:
            with suppress(OSError):
                while (request := read_message(client)) and (answer := self._answer(client, request)):
                    client.sendall(answer)
        finally:
            with self._lock:
                self._connections.discard(client)
            client.close()

    def _answer(self, client: socket.socket, request: Message) -> bytes | None:
        """Return the answer for the client; None to close the connection."""
        operation = request.operation
        with self._lock:
            self.seen[operation] += 1
            self.asked += operation not in (None, "token")
            number = self.seen[operation]
            if operation not in (None, "token") and self.asked == self.expires:
                return UNAUTHORISED
            found = (f for f in self.faults if not f.fired and (f.operation, f.nth) == (operation, number))
            if fault := next(found, None):
                fault.fired = True
        if fault is None:
            return self.ask(request).whole
        return (MOMENTS | DEATHS)[fault.moment](Exchange(self, client, request, fault))


def read_message(connection: socket.socket) -> Message | None:
    """The next request or answer of a connection; None when it ends before one is whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(1 << 16)):
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    message = Message(head + b"\r\n\r\n", body)
    length = int(message.header("content-length") or 0)
    while len(body) < length:
        if not (part := connection.recv(1 << 16)):
            return None
        body += part
    return message._replace(body=body)


# -- what goes wrong


def before_send(exchange: Exchange) -> None:
    """Break the connection before the target has received anything."""
    if exchange.fault.dice.random() < 0.5:
        exchange.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)


def after_send(exchange: Exchange) -> None:
    """The target has the request, and both connections break before it can answer."""
    with exchange.proxy.connected() as upstream:
        upstream.sendall(exchange.request.whole)
        time.sleep(exchange.fault.dice.choice([0.0, 0.002]))


def after_commit(exchange: Exchange) -> None:
    """The target has done it and answers; the answer is lost."""
    exchange.ask()


def middle_of_the_answer(exchange: Exchange) -> None:
    """The connection breaks in the head or the body of the answer."""
    answer = exchange.ask().whole
    exchange.client.sendall(answer[: exchange.fault.dice.randrange(1, len(answer))])


def before_the_ledger(exchange: Exchange) -> None:
    """The importer dies with the answer in its hands."""
    exchange.client.sendall(exchange.ask().whole)
    exchange.proxy.killed()


def held(exchange: Exchange) -> None:
    """The request reaches the target once the importer has given up: at once then, or when the importer has ended."""
    with suppress(OSError):
        while exchange.client.recv(1 << 16):
            pass
    if exchange.fault.dice.random() < 0.5:
        exchange.ask()
    else:
        exchange.proxy.hold(exchange.request)


def delivered_twice(exchange: Exchange) -> bytes:
    """The target gets the request twice; the importer gets one of the two answers."""
    answers = [exchange.ask(), exchange.ask()]
    passed = exchange.fault.dice.randrange(2)
    kept_back = answers[1 - passed]
    if exchange.request.operation == "create" and (location := kept_back.header("location")):
        exchange.proxy.doubled.append(location.rpartition("/")[2])
    return answers[passed].whole


MOMENTS: dict[str, Callable[[Exchange], bytes | None]] = {
    "before send": before_send,
    "after send": after_send,
    "after commit": after_commit,
    "in the middle of the answer": middle_of_the_answer,
    "after the answer, before the ledger": before_the_ledger,
    "held past the time-out": held,
    "delivered twice": delivered_twice,
}


def dies_with_the_request(exchange: Exchange) -> None:
    """The target has the request, and somebody dies."""
    with exchange.proxy.connected() as upstream:
        upstream.sendall(exchange.request.whole)
        time.sleep(exchange.fault.dice.choice([0.0, 0.005]))
        exchange.proxy.killed()


def dies_with_the_answer(exchange: Exchange) -> None:
    """The target has done it, and somebody dies."""
    exchange.ask()
    exchange.proxy.killed()


DEATHS: dict[str, Callable[[Exchange], bytes | None]] = {
    "with the request": dies_with_the_request,
    "with the answer": dies_with_the_answer,
}
"""Moments for `killed` to end the target too, which are no part of the table."""
