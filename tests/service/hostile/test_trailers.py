"""Bytes beside and after a body: trailers, chunk extensions, and requests that continue after their answer."""

import socket
import time
from urllib.parse import urlsplit

import pytest

from fhir_service.web import protocol
from tests.conftest import Running

HEAD = b"POST /Task HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
BESIDE = {
    "trailers": (b"0\r\n", b"x-trailer: xxxxxxxxxx\r\n"),
    "one trailer": (b"0\r\nx-trailer: ", b"x" * 64),
    "chunk extensions": (b"1;x=", b"x" * 64),
}


def connected(running: Running) -> socket.socket:
    address = urlsplit(running.url)
    return socket.create_connection((address.hostname, address.port), timeout=10)


@pytest.mark.parametrize(("begin", "part"), BESIDE.values(), ids=BESIDE)
def test_endless_trailers_or_chunk_extensions_close_the_connection(service: Running, begin: bytes, part: bytes) -> None:
    """LIMIT-16: without credentials, they filled the memory with 22 bytes for each byte sent."""
    sent = 0
    with connected(service) as connection:
        connection.sendall(HEAD + begin)
        try:
            while sent < 100 * protocol.LARGEST_HEAD:
                connection.sendall(part * 100)
                sent += len(part) * 100
        except OSError:
            pass
    assert sent < 90 * protocol.LARGEST_HEAD


def test_a_connection_whose_request_goes_on_after_its_answer_is_closed(service: Running, monkeypatch) -> None:
    """LIMIT-16: the answer can be read first."""
    monkeypatch.setattr(protocol, "LEAVE_SECONDS", 0.5)
    with connected(service) as connection:
        connection.sendall(HEAD + b"1\r\n{\r\n")
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401")
        began = time.monotonic()
        while connection.recv(65536):
            assert time.monotonic() - began < 8
    assert service.client.get("/metadata").status_code == 200


def test_a_large_body_saves_nothing_up_for_its_trailers(service: Running) -> None:
    """LIMIT-16: without credentials, one trailer took 16 times the length of the body before it."""
    body = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    trailer, sent = b"x" * 65536, 0
    with connected(service) as connection:
        connection.sendall(HEAD + body * 16 + b"0\r\nx-trailer: ")
        try:
            while sent < 12 * len(body) * 16:
                connection.sendall(trailer)
                sent += len(trailer)
        except OSError:
            pass
    assert sent < 11 * len(body) * 16


def test_a_pipelined_request_has_its_own_time(service: Running, monkeypatch) -> None:
    """LIMIT-16: the answer to the request before it does not begin the end of the connection."""
    monkeypatch.setattr(protocol, "LEAVE_SECONDS", 0.2)
    body = b'{"resourceType": "Task"}'
    token = service.headers["authorization"].encode()
    head = HEAD.replace(b"host: x", b"host: x\r\nauthorization: " + token)
    with connected(service) as connection:
        connection.sendall(b"GET /metadata HTTP/1.1\r\nhost: x\r\n\r\n" + head)
        time.sleep(1)
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        received = b""
        while b"a required element is missing" not in received:
            piece = connection.recv(65536)
            assert piece, "the connection was closed"
            received += piece


def test_a_body_in_small_chunks_is_read_and_its_trailers_are_passed_over(service: Running) -> None:
    """LIMIT-16"""
    body = b'{"resourceType": "Task"}'
    chunks = b"".join(b"1\r\n" + bytes([each]) + b"\r\n" for each in body) + b"0\r\nx-trailer: y\r\n\r\n"
    token = service.headers["authorization"].encode()
    head = HEAD.replace(b"host: x", b"host: x\r\nauthorization: " + token)
    with connected(service) as connection:
        connection.sendall(head + chunks)
        assert b"a required element is missing" in connection.recv(65536)
        connection.sendall(b"GET /metadata HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
