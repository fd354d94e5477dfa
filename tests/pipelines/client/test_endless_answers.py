"""Answers that come a byte at a time, hold more than any that is expected, or have no last page: each is an error."""

import gzip
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

from pipelines.client import connections
from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.replies import NotSent, TargetUnusable, TimedOut, UnknownOutcome
from pipelines.client.tokens import Credentials
from tests.support.serving import Answers, served

PLAIN = b" "
NAMED = b"\x1f\x8b\x08\x08" + bytes(6)
"""The head of a packed text, up to a name that has no end: nothing of it can be unpacked."""
SECRET = "Ada Marker"


class Endless(Answers):
    """Sends `head` if it is set, else that of an answer and `first`; then a letter every 20 ms, or what `more` has.

    Or, if that is set, `whole`. asked: how often.
    """

    protocol_version = "HTTP/1.1"
    first, encoding, whole, asked, over = PLAIN, "identity", b"", 0, threading.Event()
    head, more = b"", b"x"

    def do_GET(self) -> None:
        type(self).asked += 1
        self.sent()
        if self.head:
            self.wfile.write(self.head)
            while not self.over.wait(0.02):
                self.wfile.write(self.more)
            return
        self.send_response(200)
        self.send_header("content-encoding", self.encoding)
        self.send_header("content-length", str(len(self.whole) or 10**6))
        self.end_headers()
        self.wfile.write(self.whole or self.first)
        while not self.whole and not self.over.wait(0.02):
            self.wfile.write(b"x")

    do_POST = do_GET


@pytest.fixture
def server() -> Iterator[type[Endless]]:
    scripted: Any = type("Scripted", (Endless,), {"over": threading.Event()})
    with served(scripted) as scripted.url:
        yield scripted
        scripted.over.set()


def client_of(server: Any, credentials: Credentials) -> FhirClient:
    return FhirClient(server.url, credentials, timeout=0.5, patience=RetryPauses(2, sleep=lambda _: None))


WAYS = {
    "a read": (lambda client: client.read("Task", "t"), TimedOut, 2),
    "a page": (lambda client: client.get("/Task"), TimedOut, 2),
    "a create": (lambda client: client.create("Task", "{}"), TimedOut, 1),
    "a bundle": (lambda client: client.create_all("Task", [("{}", '"a=b"')]), TimedOut, 1),
    "a statement": (lambda client: client.capabilities(), TargetUnusable, 1),
}


@pytest.mark.alike
@pytest.mark.parametrize(("first", "encoding"), [(PLAIN, "identity"), (NAMED, "gzip")], ids=["plain", "packed"])
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_comes_a_byte_at_a_time_is_late(way: str, first: bytes, encoding: str, server: Any) -> None:
    """LEDGER-11: each byte alone is in time."""
    server.first, server.encoding = first, encoding
    act, raised, times = WAYS[way]
    client, began = client_of(server, Credentials(token="t")), time.monotonic()
    with pytest.raises(raised, match="its answer did not end within 1 seconds"):
        act(client)
    assert server.asked == times
    assert time.monotonic() - began < 10
    client.close()


HEADS = {
    "a status": (b"HTTP/1.1 2", b"0"),
    "a header": (b"HTTP/1.1 200 OK\r\nx-long: ", b"x"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
    "answers that are none yet": (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


@pytest.mark.alike
@pytest.mark.parametrize("name", HEADS)
def test_an_answer_whose_head_comes_a_byte_at_a_time_is_late(name: str, server: Any) -> None:
    """LEDGER-11: the time begins with the request."""
    server.head, server.more = HEADS[name]
    client, began = client_of(server, Credentials(token="t")), time.monotonic()
    with pytest.raises(TimedOut, match="its answer did not end within 1 seconds"):
        client.create("Task", "{}")
    assert (server.asked, time.monotonic() - began < 10) == (1, True)
    client.close()


def test_a_request_that_is_taken_piece_by_piece_is_late(server: Any) -> None:
    """LEDGER-11: each piece of it is taken in time."""

    def trickles(handler: Any) -> None:
        while not server.over.wait(0.1) and handler.rfile.read(600_000):
            pass

    server.do_POST = trickles
    client, began = client_of(server, Credentials(token="t")), time.monotonic()
    stopper = threading.Timer(20, server.over.set)
    stopper.start()
    with pytest.raises(TimedOut, match="it did not take the request within 1 seconds"):
        client.create("Task", bytes(100_000_000))
    assert time.monotonic() - began < 10
    stopper.cancel()
    client.close()


def test_a_token_that_arrives_a_byte_at_a_time_is_given_up(server: Any) -> None:
    client = client_of(server, Credentials(client_id="c", client_secret="s"))
    with pytest.raises(NotSent, match="no access token: its answer did not end within 1 seconds"):
        client.create("Task", "{}")
    client.close()


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_answer_larger_than_any_is_given_up_at_once(encoding: str, server: Any, monkeypatch: Any) -> None:
    """LEDGER-11: also one that is packed small."""
    monkeypatch.setattr(connections, "MOST_BYTES", 1 << 20)
    whole = (SECRET * 200_000).encode()
    server.encoding, server.whole = encoding, gzip.compress(whole) if encoding == "gzip" else whole
    client = client_of(server, Credentials(token="t"))
    with pytest.raises(UnknownOutcome) as error:
        client.get("/Task")
    assert (str(error.value), server.asked) == ("its answer is larger than 1 MiB", 1)
    client.close()


def test_an_answer_that_is_packed_more_than_once_is_given_up_unread(server: Any) -> None:
    """LEDGER-11: 20 KB of it hold 10 GB, of which one piece filled the memory before it was measured."""
    packed = gzip.compress(gzip.compress(bytes(10**8)))
    server.encoding, server.whole = "gzip, gzip", packed
    client = client_of(server, Credentials(token="t"))
    tracemalloc.start()
    try:
        with pytest.raises(UnknownOutcome, match="its answer is packed more than once"):
            client.get("/Task")
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()
    assert server.asked == 1
    client.close()


def test_a_packed_answer_is_unpacked(server: Any) -> None:
    server.encoding, server.whole = "gzip", gzip.compress(b'{"resourceType": "Task", "id": "t"}')
    client = client_of(server, Credentials(token="t"))
    assert client.read("Task", "t") == {"resourceType": "Task", "id": "t"}
    client.close()


@pytest.mark.parametrize(
    ("total", "pages", "said"),
    [
        (7, None, "its pages hold 100 resources and go on; it counts 7"),
        (None, None, "it shows 60 pages, and still there is a next one"),
        (100, 50, None),
        (None, 55, None),
    ],
    ids=["counted", "not counted", "a true count", "few pages"],
)
@pytest.mark.parametrize("at_once", [1, 4])
def test_endless_pages_of_new_resources_are_read_only_as_far_as_the_total_allows(
    monkeypatch: Any, at_once: int, total: int | None, pages: int | None, said: str | None
) -> None:
    """CLI-CMD-17, LEDGER-04: a target that makes up resources without end."""
    monkeypatch.setattr("pipelines.client.whole.BEYOND", 85)
    monkeypatch.setattr("pipelines.client.whole.MOST_PAGES", 60)
    asked = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        links = [{"relation": "next", "url": f"?page={len(asked)}"}] if len(asked) != pages else []
        counted = {} if total is None else {"total": total}
        entries = [{"resource": {"resourceType": "Task", "id": f"{len(asked)}-{each}"}} for each in (1, 2)]
        return httpx.Response(200, json={"link": links, "entry": entries} | counted)

    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=httpx.MockTransport(answer))
    with pytest.raises(UnknownOutcome, match=said) if said else nullcontext():
        assert len(list(client.pages("Task", at_once=at_once))) == pages
    client.close()


@pytest.mark.parametrize("shown", [{"resourceType": "Task", "id": "other"}, {"resourceType": "Patient", "id": "t"}])
def test_a_read_that_returns_another_resource_is_refused(shown: dict[str, str]) -> None:
    """LEDGER-04: a proxy may have mixed up two requests."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=shown))
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=transport)
    with pytest.raises(UnknownOutcome, match="a read answers with another resource"):
        client.read("Task", "t")
    client.close()
