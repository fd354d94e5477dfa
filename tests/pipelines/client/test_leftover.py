"""A target that answers twice to one request: its second answer is nobody's."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import HTTPServer
from socketserver import StreamRequestHandler, ThreadingMixIn
from typing import Any

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.tokens import Credentials
from tests.support.serving import serving_in_a_thread


def created(name: str) -> bytes:
    head = f"HTTP/1.1 201 Created\r\nlocation: /Task/{name}\r\ncontent-length: 4\r\n\r\n"
    return head.encode() + b"null"


def in_chunks(name: str) -> bytes:
    head = f"HTTP/1.1 201 Created\r\nlocation: /Task/{name}\r\ntransfer-encoding: chunked\r\n\r\n"
    return head.encode() + b"3\r\nnul\r\n1;of=all\r\nl\r\n0\r\n\r\n"


def without_content(name: str) -> bytes:
    early = "HTTP/1.1 103 Early Hints\r\n\r\n"
    return f"{early}HTTP/1.1 201 Created\r\nlocation: /Task/{name}\r\ncontent-length: 0\r\n\r\n".encode()


class Twice(StreamRequestHandler):
    """Answers each create with the next number, and in the same piece with what the class has as `extra`."""

    extra, made, connections = b"", 0, 0
    answer = staticmethod(created)

    def handle(self) -> None:
        type(self).connections += 1
        with suppress(OSError):
            while self.rfile.readline().strip():
                length = 0
                while header := self.rfile.readline().strip():
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                self.rfile.read(length)
                type(self).made += 1
                self.request.sendall(self.answer(str(self.made)) + self.extra)


@pytest.fixture
def target() -> Iterator[Any]:
    scripted: Any = type("Scripted", (Twice,), {})
    server = type("Server", (ThreadingMixIn, HTTPServer), {"daemon_threads": True})(("127.0.0.1", 0), scripted)
    with serving_in_a_thread(server) as scripted.url:
        yield scripted


@pytest.mark.parametrize(
    "extra", [created("extra"), created("extra")[:30], b"\r\n", b""], ids=["an answer", "a part", "a line", "nothing"]
)
@pytest.mark.parametrize("answer", [created, in_chunks, without_content])
def test_bytes_after_an_answer_are_never_taken_for_the_next_answer(
    target: Any, answer: Callable[[str], bytes], extra: bytes
) -> None:
    """LEDGER-11: of a create, it would be the id of another resource."""
    target.extra, target.answer = extra, staticmethod(answer)
    client = FhirClient(target.url, Credentials(token="t"))
    names = [client.create("Task", "{}").resource_id for _ in range(5)]
    client.close()
    assert names == ["1", "2", "3", "4", "5"]
    assert target.connections == (5 if extra else 1)
