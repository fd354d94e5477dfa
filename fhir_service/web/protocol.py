"""HTTP over one connection, with bounds on headers, on pipelined requests, and on answers that are not read."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fhir_service.ids import new_id
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import INVALID, FhirError, outcome_of

HEAD_SECONDS = 30.0
"""Seconds for the head of a request to arrive, counted from the connection or from its first byte."""
LARGEST_HEAD = 64 << 10
"""Bytes of request line and headers together."""
PART = 8 << 10
"""Bytes that are parsed at once, except for bodies. So much of later requests may be parsed before their turn."""
BEYOND = PART + (1 << 10)
"""Bytes that an unfinished head may have beyond `LARGEST_HEAD`: the method, blanks, and what was parsed before it."""
_TOO_LARGE = f"request line and headers have more than {LARGEST_HEAD:,} bytes"
_TUNNEL = "CONNECT is not supported"
_HOST = "the request must have one host header"
CHUNK_LINES = 16
"""Bytes of chunk lines that are allowed for each byte of a body: a chunk of one byte needs a line with its size."""
LENGTH, LONGEST_LENGTH = b"content-length", 12
LEAVE_SECONDS = 5.0
"""Seconds for which the rest of a request is read after its answer."""
UNREAD_SECONDS = 60.0
LEAST_READ = 64 << 10
"""Bytes of a waiting answer that a client has to read in `UNREAD_SECONDS`; otherwise its connection is closed."""
MOST_UNREAD = 1 << 30
"""Bytes of answers that may wait to be read by all clients together."""


class _Unacceptable(Exception):
    """A head that is valid HTTP and is refused. The parser stops, and its error has this one as context."""


def _make_room(connections: Iterable[Any]) -> None:
    """Close the connections with the largest unread answers until all others have at most `MOST_UNREAD` bytes."""
    unread = [(one.transport.get_write_buffer_size(), one.transport) for one in connections]
    left = sum(size for size, _ in unread)
    for size, transport in sorted(unread, key=itemgetter(0), reverse=True):
        if left <= MOST_UNREAD:
            return
        left -= size
        transport.abort()


class _Flow(FlowControl):
    """The pace of a connection. It is read only while no request waits for its turn, and no answer to be read."""

    def __init__(
        self, transport: asyncio.Transport, may_read: Callable[[], bool], read_on: Callable[[], object]
    ) -> None:
        super().__init__(transport)
        self._may_read, self._read_on = may_read, read_on

    def resume_reading(self) -> None:
        if self.read_paused and self._may_read():
            super().resume_reading()
            self._read_on()

    def end(self) -> None:
        """Drop the references to the connection. A reference cycle would keep its memory until garbage collection."""
        self._may_read = self._read_on = _no_more


def _no_more() -> bool:
    """Stand in for `may_read` and `read_on` after the end of the connection."""
    return False


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds on all that a client sends or leaves unread.

    * Invalid HTTP is answered with the interface's OperationOutcome.
    * The head of a request is bounded by its length, however it arrives. So are trailers, chunk sizes and extensions.
    * If an answer went out before its request ended, the rest is read for `LEAVE_SECONDS`, and then the connection is
      closed. A reset at once would keep a client that still sends from reading the answer.
    * At most one answer waits to be read. A client that does not read it loses the connection. If unread answers have
      more than `MOST_UNREAD` bytes in all, the clients with the largest ones lose theirs.
    * A client that closes its sending side still gets its answers.
    """

    _head: int | None = 0
    _said = 0
    _beside = 0
    _due = 0
    _changing = False
    _patience: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _waiting: memoryview | bytes = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self._may_read, self._read_on)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = b""
        self._head_is_here()
        self._stay()
        self._is_read()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if isinstance(self.flow, _Flow):
            self.flow.end()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return True while complete requests are unanswered: this keeps the connection open.

        Bytes that wait are parsed later, and asyncio then calls this again.
        """
        self._parse_waiting()
        if self._waiting:
            return True
        if self._is_answering():
            self.cycle.keep_alive = False
            return True
        return False

    def _is_answering(self) -> bool:
        """True if the newest request has arrived completely and is not answered yet."""
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.more_body)  # type: ignore[redundant-expr]

    def data_received(self, data: bytes) -> None:
        self._waiting = memoryview(bytes(self._waiting) + data) if self._waiting else data
        self._parse_waiting()

    def _may_read(self) -> bool:
        return not (self.pipeline or self.flow.write_paused)

    def _read_on(self) -> None:
        """Parse the waiting bytes after the current call: its caller has more to do first."""
        if self._waiting:
            self.loop.call_soon(self._parse_waiting)

    def _parse_waiting(self) -> None:
        """Parse the bytes that came, until a request has to wait for its turn or a body has to be read."""
        while self._waiting and not self.flow.read_paused and not self.transport.is_closing():
            part, size, self._waiting = self._waiting, max(PART, self._due), b""
            if size < len(part):
                whole = memoryview(part)
                part, self._waiting = whole[:size], whole[size:]
            self._parse(part)

    def _parse(self, data: memoryview | bytes) -> None:
        if self._head is None:
            self._beside += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as asked:
            if self._changing:
                self._waiting = memoryview(self._unchanged_head() + bytes(data)[asked.args[0] :] + self._waiting)
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except HttpParserError as error:
            why = error.__context__
            self.send_400_response(str(why) if isinstance(why, _Unacceptable) else "the request is not valid HTTP")
        if self._head is not None:
            self._head += len(data)
            if self._head > LARGEST_HEAD + BEYOND and not self.transport.is_closing():
                self.send_400_response(_TOO_LARGE)
        elif self._beside > LARGEST_HEAD and not self.transport.is_closing() and not self._ends_answered():
            self.transport.close()

    def _unchanged_head(self) -> bytes:
        """Return the head of the newest request without its wish to upgrade to another protocol.

        Java's own client asks for HTTP/2. The parser would take all that follows for that protocol, so that a new
        parser reads this head.
        """
        said = [self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
        said += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*said, b"", b""])

    def on_message_begin(self) -> None:
        self._head, self._said, self._beside, self._due, self._changing = 0, 0, 0, 0, False
        self._await_head()
        # The time-out ends only here: blank lines and the rest of an answered request do not begin a new request.
        self._unset_keepalive_if_required()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._said += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop trailers, which come after the head."""
        if self._head is not None:
            self._said += len(name) + len(value) + len(b": \r\n")
            if len(name) == len(LENGTH) and name.lower() == LENGTH and value.isdigit():
                self._due = int(value[:LONGEST_LENGTH])
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body. It pays for its chunk line; a large chunk earns no allowance for later ones."""
        self._beside = max(0, self._beside - CHUNK_LINES * len(body))
        self._due -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._changing:
            return
        super().on_message_complete()
        self._stay()

    def on_response_complete(self) -> None:
        # If the newest request is a later, pipelined one, the request that was answered here has arrived completely.
        if self.cycle.response_complete and self.cycle.more_body and self._leaving is None:
            self._leaving = self.loop.call_later(LEAVE_SECONDS, self.transport.close)
        super().on_response_complete()
        if self._patience:
            self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._await_reader()
        else:
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        self._await_reader()
        self.loop.call_soon(_make_room, self.connections)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()
        if not self.transport.is_closing():
            self._is_read()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. One that is not being read is not idle: wait once more."""
        if self.flow.read_paused:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
            return
        super().timeout_keep_alive_handler()
        self._await_reader()

    def on_headers_complete(self) -> None:
        self._head = None
        self._head_is_here()
        if self._said > LARGEST_HEAD:
            raise _Unacceptable(_TOO_LARGE)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            # A proxy on the way may have used another of several hosts.
            raise _Unacceptable(_HOST)
        self._changing = self.parser.should_upgrade()
        if self._changing and b"upgrade" not in dict(self.headers):
            raise _Unacceptable(_TUNNEL)
        if not self._changing:
            super().on_headers_complete()

    def _stay(self) -> None:
        if self._leaving:
            self._leaving.cancel()
            self._leaving = None

    def _await_reader(self) -> None:
        if self._reading is None:
            unsent = self.transport.get_write_buffer_size()
            self._reading = self.loop.call_later(UNREAD_SECONDS, self._look_at_reader, unsent)

    def _look_at_reader(self, before: int) -> None:
        """Close the connection of a client that has read too little of its answer since the last look."""
        self._reading = None
        if before - self.transport.get_write_buffer_size() < LEAST_READ:
            self.transport.abort()
        else:
            self._await_reader()

    def _is_read(self) -> None:
        if self._reading:
            self._reading.cancel()
            self._reading = None

    def _await_head(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _head_is_here(self) -> None:
        if self._patience:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if self.flow.read_paused:
            self._await_head()
        elif not hasattr(self, "url"):
            # No request has begun. A client that sends one just now would take this answer for its own.
            self.transport.close()
        elif not self.transport.is_closing():
            self.send_400_response("request line and headers did not arrive in time")

    def _ends_answered(self) -> bool:
        """True if a complete request is still being answered. Its answer is then the last one of this connection.

        An answer to the bytes after it would be taken for the answer to that request.
        """
        if not self._is_answering():
            return False
        self.cycle.keep_alive, self._waiting = False, b""
        self.flow.pause_reading()
        return True

    def _has_begun(self) -> bool:
        """True if the answer to the newest request was sent in part."""
        cycle = self.cycle
        return cycle is not None and cycle.response_started and not cycle.response_complete  # type: ignore[redundant-expr]

    def send_400_response(self, msg: str) -> None:
        if self._ends_answered():
            return
        body = dump_json(outcome_of(FhirError(INVALID, _TOO_LARGE if self._said > LARGEST_HEAD else msg)))
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        headers["x-correlation-id"] = new_id()
        if self.pipeline:
            # The body of a waiting request is broken: its refusal waits for its turn, too.
            cycle, _ = self.pipeline.popleft()
            self.pipeline.appendleft((cycle, partial(_refuse, headers, body)))
            self._waiting = b""
        elif self._has_begun():
            self.transport.close()
        else:
            lines = ("HTTP/1.1 400 Bad Request", *(f"{name}: {value}" for name, value in headers.items()), "", "")
            self.transport.write("\r\n".join(lines).encode() + body)
            self.transport.close()
            self._await_reader()


async def _refuse(headers: dict[str, str], body: bytes, _scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer a request that turned out to be invalid HTTP while it waited for its turn."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 400, "headers": raw})
    await send({"type": "http.response.body", "body": body})
