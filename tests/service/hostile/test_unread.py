"""Clients that send and do not read: what waits for them is bounded, and they do not keep their connection."""

import contextlib
import functools
import json
import re
import socket
import time
from urllib.parse import urlsplit

import pytest

from fhir_service.web import protocol
from tests.conftest import BOTH
from tests.service.hostile.sent import get, post, request_of, statuses, with_meta
from tests.support.bodies import TASK

STORES = BOTH
PAGE = "GET /Task?_count=100 HTTP/1.1"
LARGE = "x" * 100_000


@pytest.fixture(name="full")
def with_a_large_page(service):
    """The service, with a page of some megabytes."""
    if service.client.get("/Task?_count=0").json()["total"] < 40:
        for _ in range(40):
            assert post(service, "/Task", json.dumps(TASK | {"description": LARGE})).status_code == 201
    return service


@pytest.fixture(name="begun")
def requests_begun(monkeypatch):
    """The requests that were begun, one for each."""
    begun = []
    start = protocol.HttpProtocol._start_asgi_task

    def noted(self, cycle, app):
        begun.append(cycle)
        start(self, cycle, app)

    monkeypatch.setattr(protocol.HttpProtocol, "_start_asgi_task", noted)
    return begun


def connected(service):
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port), timeout=20)


def send_on(connection, request, until):
    while time.monotonic() < until:
        connection.sendall(request)
        time.sleep(0.05)


def alive(service, start="GET /Task?_count=0 HTTP/1.1"):
    return request_of(service, start=start)


def test_a_client_that_does_not_read_is_disconnected(full, begun, monkeypatch):
    """One answer waits for it; then no request is begun, nor read, and after some time it is left."""
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", 1.0)
    with connected(full) as connection:
        connection.sendall(alive(full, PAGE) * 20)
        time.sleep(0.8)
        # The kernel takes an answer or two.
        assert 1 <= len(begun) < 6
        began = time.monotonic()
        sent_on = functools.partial(send_on, connection, alive(full, PAGE), began + 10)
        with pytest.raises(OSError, match=r"reset|Broken"):
            sent_on()
        assert time.monotonic() - began < 8
        assert len(begun) < 6


@pytest.mark.alike
@pytest.mark.parametrize("least", [0, 1])
def test_a_client_that_closes_without_reading_is_disconnected(full, monkeypatch, least):
    """The last answer of a connection is not kept for ever either, however small its rest is."""
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", 0.5)
    ended = []
    lost = protocol.HttpProtocol.connection_lost

    def noted(self, exc):
        ended.append(self.client)
        lost(self, exc)

    monkeypatch.setattr(protocol.HttpProtocol, "connection_lost", noted)
    with connected(full) as connection:
        for _ in range(least):
            connection.sendall(alive(full, PAGE))
        connection.sendall(get(full, start=PAGE))
        began = time.monotonic()
        mine = connection.getsockname()
        while mine not in ended and time.monotonic() - began < 10:
            time.sleep(0.05)
        assert mine in ended


@pytest.mark.alike
def test_answers_that_wait_to_be_read_are_bounded_in_all(fresh_service, begun, monkeypatch):
    """LIMIT-17: otherwise each of any number of connections could have a page of some hundred megabytes in memory."""
    large = TASK | {"description": "x" * 900_000, "input": [{"type": {"text": "label"}, "valueString": "unread"}]}
    for _ in range(20):
        assert post(fresh_service, "/Task", json.dumps(large)).status_code == 201
    path = "/Task?label=unread&_count=20"
    page = len(fresh_service.client.get(path).content)
    begun.clear()
    monkeypatch.setattr(protocol, "MOST_UNREAD", 2 * page)
    waiting = [connected(fresh_service) for _ in range(9)]
    for connection in waiting:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        connection.sendall(get(fresh_service, start=f"GET {path} HTTP/1.1"))
    until = time.monotonic() + 30
    while len(begun) < 9 or not all(each.response_complete or each.disconnected for each in begun):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert len(fresh_service.client.get(path).content) == page
    assert page / 10 < sum(each.transport.get_write_buffer_size() for each in begun) <= 2 * page
    received = [whole(connection) for connection in waiting]
    assert 1 <= sum(length >= page for length in received) < 9  # the kernel has some of each answer


def whole(connection):
    """The number of bytes that still come over a connection, whether it ends or is reset."""
    length = 0
    with connection, contextlib.suppress(OSError):
        while piece := connection.recv(1 << 20):
            length += len(piece)
    return length


def test_a_client_that_reads_slowly_gets_the_whole_answer(full, monkeypatch):
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", 2.0)
    monkeypatch.setattr(protocol, "LEAST_READ", 1)
    with connected(full) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        connection.sendall(alive(full, PAGE) * 2 + get(full, start=PAGE))
        received = b""
        while piece := connection.recv(65536):
            received += piece
            time.sleep(0.01)
    assert statuses(received) == [200] * 3


def test_requests_that_are_sent_at_once_wait_outside_until_it_is_their_turn(service, monkeypatch):
    """However many are sent, few are held; each is answered, in order."""
    most = []
    complete = protocol.HttpProtocol.on_headers_complete

    def noted(self):
        complete(self)
        most.append(len(self.pipeline))

    monkeypatch.setattr(protocol.HttpProtocol, "on_headers_complete", noted)
    health = b"GET /health HTTP/1.1\r\nhost: x\r\nx-correlation-id: %d\r\n\r\n"
    with connected(service) as connection:
        sent = b"".join(health % number for number in range(1000))
        connection.sendall(sent + get(service, "x-correlation-id: 1000", start="GET /health HTTP/1.1"))
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert [int(found) for found in re.findall(rb"x-correlation-id: (\d+)", received)] == list(range(1001))
    assert max(most) * len(health) <= protocol.PART + len(health)


def test_a_body_behind_an_answer_that_waits_is_read(service):
    """Requests with bodies, sent at once: no part of one is lost, or taken for another."""
    body = with_meta('"' + "y" * 50_000 + '"').encode()
    lines = "content-type: application/json", f"content-length: {len(body)}"
    one = request_of(service, *lines, start="POST /Task HTTP/1.1", body=body)
    with connected(service) as connection:
        connection.sendall(one * 8 + get(service))
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert statuses(received) == [201] * 8 + [200]


def test_a_request_behind_an_answer_that_is_read_late_is_answered(full, monkeypatch):
    """It is not idle: the connection is kept for longer than one over which nothing comes."""
    made = protocol.HttpProtocol.connection_made

    def impatient(self, transport):
        made(self, transport)
        self.timeout_keep_alive = 0.2

    monkeypatch.setattr(protocol.HttpProtocol, "connection_made", impatient)
    with connected(full) as connection:
        connection.sendall(alive(full, PAGE) * 2 + get(full, start=PAGE))
        time.sleep(1)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert statuses(received) == [200] * 3


@pytest.mark.parametrize("broken", ["no HTTP\r\n\r\n", "GET /health HTTP/1.1\r\nhost: x\r\nx" + "x" * 80_000])
def test_no_answer_comes_before_its_turn(service, broken):
    """Bytes after a request that are not HTTP get no answer: the connection ends after the answer to the request."""
    with connected(service) as connection:
        connection.sendall(alive(service) + alive(service) + broken.encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert statuses(received)[:2] == [200, 200]


def test_a_broken_body_that_waits_its_turn_is_answered_in_its_turn(service):
    """Nothing that was sent before is answered as if it was no HTTP."""
    broken = request_of(service, "transfer-encoding: chunked", start="POST /Task HTTP/1.1") + b"no size\r\n"
    with connected(service) as connection:
        connection.sendall(alive(service) + broken)
        assert statuses(b"".join(iter(lambda: connection.recv(65536), b""))) == [200, 400]


def test_a_client_that_ends_its_side_after_its_requests_gets_the_answers(service):
    """Otherwise a client that ends its side of the connection would have its task stored and get no answer."""
    body = with_meta("1").encode()
    lines = "content-type: application/json", f"content-length: {len(body)}"
    one = request_of(service, *lines, start="POST /Task HTTP/1.1", body=body)
    with connected(service) as connection:
        connection.sendall(one * 3 + alive(service))
        connection.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        assert statuses(b"".join(iter(lambda: connection.recv(65536), b""))) == [201, 201, 201, 200]
        assert time.monotonic() - began < 4
