"""Connections to the service's protocol without sockets: bytes arrive in given pieces, and tests move the clock.

The application echoes the request.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn
from uvicorn.server import ServerState

from fhir_service.web.http import BODY_SECONDS
from fhir_service.web.protocol import HttpProtocol

Piece = tuple[bytes, int]
"""Bytes that arrive together, and the turns of the loop until more arrive."""
LONGEST = 500
"""The turns of the loop within which a paused connection must read again."""


class Answer(NamedTuple):
    """One answer. named: the number of its request."""

    status: int
    named: str | None
    headers: dict[str, str]
    body: bytes


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock that tests move."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class _Transport(asyncio.Transport):
    """The service's end of a connection. Writing after the end raises, as in uvloop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop, self.out = loop, b""
        self.closing = self.lost = False
        self.reads, self.ended = True, False
        self.protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def write(self, data: Any) -> None:
        if self.lost:
            raise RuntimeError("the handler is closed")
        if not self.closing:
            self.out += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self._lose)

    abort = close

    def _lose(self) -> None:
        self.lost = True
        self.protocol.connection_lost(None)

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True
        if self.ended:
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """End the client's side. The protocol notices when it reads on."""
        self.ended = True
        if self.reads and not self.closing and not self.protocol.eof_received():
            self.close()


class Wire:
    """Connections, one after another, over a loop of their own. logged: warnings, errors and exceptions."""

    def __init__(self, loop: _Loop, logged: list[str]) -> None:
        self._loop, self.logged = loop, logged
        self._config = uvicorn.Config(
            _echo, ws="none", lifespan="off", log_config=None, access_log=False, date_header=False
        )
        self._config.load()

    def exchanged(self, pieces: Sequence[Piece], ended: bool = False, bodiless: bool = False) -> list[Answer]:
        """Return the answers of a connection until it is closed. Asserts that it is closed in the end.

        ended: true if the client then ends its side. bodiless: the last answer may be a 400 to a HEAD, without body.
        """
        return self._loop.run_until_complete(self._exchanged(pieces, ended, bodiless))

    async def _exchanged(self, pieces: Sequence[Piece], ended: bool, bodiless: bool) -> list[Answer]:
        transport, state = _Transport(self._loop), ServerState()
        transport.protocol = connection = HttpProtocol(self._config, state, {}, self._loop)
        connection.connection_made(transport)
        for data, turns in pieces:
            await _until(lambda: transport.reads or transport.closing)
            if transport.closing:
                break
            connection.data_received(data)
            await _turns(turns)
        await _turns(60)
        if ended:
            transport.end()
        for _ in range(40):
            if transport.lost:
                break
            await _turns(5)
            self._loop.ahead += 0 if ended else BODY_SECONDS / 6
        assert transport.lost, "a connection over which nothing comes is never closed"
        await _turns(10)
        assert not state.tasks, "a request is never answered"
        return list(_answers(transport.out, bodiless))


@contextmanager
def wire() -> Iterator[Wire]:
    """Yield a wire. Asserts that nothing was logged."""
    loop, logged = _Loop(), list[str]()
    loop.set_exception_handler(lambda _, context: logged.append(str(context)))
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(f"{record.getMessage()} {record.exc_info}")  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield Wire(loop, logged)
    finally:
        logging.getLogger().removeHandler(handler)
        loop.close()


async def _turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(LONGEST):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("the connection is never read again")


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Echo the request. A path that begins with `/unread` leaves the body unread; `/late` is answered later.

    The header `x-size` asks for additional bytes.
    """
    if scope["path"].startswith("/late"):
        await _turns(5)
    size, digest, status, more = 0, hashlib.sha256(), 200, list[tuple[bytes, bytes]]()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while not scope["path"].startswith("/unread"):
                message = await receive()
                body = message.get("body", b"")
                size += len(body)
                digest.update(body)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        status, more = 408, [(b"connection", b"close")]
    headers = dict(scope["headers"])
    names = ("method", "path", "query_string", "http_version")
    said: dict[str, Any] = {name: str(scope[name]) for name in names}
    said["headers"] = [[name.decode(), hashlib.sha256(value).hexdigest()] for name, value in scope["headers"]]
    text = json.dumps(said | {"size": size, "digest": digest.hexdigest()}).encode()
    more_text = headers.get(b"x-size", b"")
    text += b" " * int(more_text if len(more_text) < 7 and more_text.isdigit() else 0)
    named = [(b"x-number", headers.get(b"x-number", b"")), (b"x-method", scope["method"].encode())]
    start = [(b"content-length", str(len(text)).encode()), *named, *more]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": text})


def _answers(out: bytes, bodiless: bool) -> Iterator[Answer]:
    """Yield the answers in the written bytes. Asserts that each is complete. bodiless: see `Wire.exchanged`."""
    while out:
        head, end, out = out.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        found = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]*", first)
        assert end
        assert found, first
        headers = dict(line.split(": ", 1) for line in lines)
        is_head = headers.get("x-method") == "HEAD" or (bodiless and found[1] == "400" and not out)
        length = 0 if is_head else int(headers.get("content-length", 0))
        assert len(out) >= length, "an answer is cut"
        yield Answer(int(found[1]), headers.get("x-number"), headers, out[:length])
        out = out[length:]
