"""Broken and odd HTTP: each gets an answer of the Errors table, and none affects another request."""

import gzip
import json
import socket
from urllib.parse import urlsplit

import pytest

from fhir_service.web import protocol
from tests.conftest import BOTH
from tests.service.hostile.sent import exchanged, get, request_of, statuses, with_meta

STORES = BOTH
pytestmark = pytest.mark.crossed


BROKEN = {
    "garbage": lambda _: b"\x00\x01\x02\xff" * 100,
    "a TLS greeting": lambda _: bytes.fromhex("16030100a5010000a10303") + b"x" * 200,
    "HTTP/2": lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": lambda _: b"GET /Task\r\n",
    "HTTP of the future": lambda s: request_of(s, start="GET /Task HTTP/9.9"),
    "no method": lambda s: request_of(s, start="/Task HTTP/1.1"),
    "an unknown method": lambda s: request_of(s, start="BREW /Task HTTP/1.1"),
    "a method in small letters": lambda s: request_of(s, start="get /Task HTTP/1.1"),
    "a blank in a name": lambda s: request_of(s, "bad name: x"),
    "a blank before the colon": lambda s: request_of(s, "content-length : 5"),
    "no host": lambda s: request_of(s).replace(b"host: x\r\n", b""),
    "two hosts": lambda s: request_of(s, "Host: y"),
    "no colon": lambda s: request_of(s, "nothing"),
    "no name": lambda s: request_of(s, ": x"),
    "a NUL in a value": lambda s: request_of(s, "x-a: \x00"),
    "a bare return in a value": lambda s: request_of(s, "x-a: a\rb"),
    "two lengths": lambda s: request_of(s, "content-length: 1", "content-length: 2", start="POST /Task HTTP/1.1"),
    "a length and chunks": lambda s: request_of(
        s, "content-length: 5", "transfer-encoding: chunked", start="POST /Task HTTP/1.1", body=b"0\r\n\r\n"
    ),
    "a length in words": lambda s: request_of(s, "content-length: ten", start="POST /Task HTTP/1.1"),
    "a negative length": lambda s: request_of(s, "content-length: -1", start="POST /Task HTTP/1.1"),
    "a length beyond counting": lambda s: request_of(s, "content-length: " + "9" * 40, start="POST /Task HTTP/1.1"),
    "an unknown transfer": lambda s: request_of(s, "transfer-encoding: gzip", start="POST /Task HTTP/1.1"),
    "a chunk of no size": lambda s: request_of(
        s,
        "transfer-encoding: chunked",
        "content-type: application/json",
        start="POST /Task HTTP/1.1",
        body=b"zz\r\n{}\r\n",
    ),
    "a chunk beyond counting": lambda s: request_of(
        s,
        "transfer-encoding: chunked",
        "content-type: application/json",
        start="POST /Task HTTP/1.1",
        body=b"f" * 40 + b"\r\n",
    ),
    "a long header": lambda s: request_of(s, "x-a: " + "x" * 200_000),
    "a long header name": lambda s: request_of(s, "x" * 200_000 + ": x"),
    "many headers": lambda s: request_of(s, *(f"x-{number}: x" for number in range(20_000))),
    "a long address": lambda s: request_of(s, start="GET /Task?" + "x" * 200_000 + " HTTP/1.1"),
    "an endless head": lambda _: b"GET /" + b"x" * 2_000_000,
}
"""Requests that are no HTTP, or have too large a head."""


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_not_http_are_a_bad_request(service, monkeypatch, name):
    """ERR-400-01, COMMON-48: in JSON, like every error; the connection is closed, and others go on."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 1.0)
    received = exchanged(service.url, BROKEN[name](service))
    # Who sends on and on may find the connection closed before the answer can be read.
    assert statuses(received) == [400] or (received == b"" and len(BROKEN[name](service)) > protocol.LARGEST_HEAD)
    if received:
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"x-correlation-id: " in head
        assert json.loads(body)["issue"][0]["code"] == "invalid"
    assert service.client.get("/health").status_code == 200


@pytest.mark.parametrize("at_once", [100, 65_000, 10**6])
@pytest.mark.parametrize(
    ("more", "said"), [(-200, "_offset"), (50, "request line and headers have more than 65,536 bytes")]
)
def test_a_request_head_is_too_large_by_its_length_in_whatever_pieces_it_arrives(service, more, said, at_once):
    """COMMON-48: its answer goes neither by the size of what is read at once nor by the moment."""
    request = get(service, start=f"GET /Task?_offset={'x' * (protocol.LARGEST_HEAD + more)} HTTP/1.1")
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        for start in range(0, len(request), at_once):
            connection.sendall(request[start : start + at_once])
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert statuses(answer) == [400]
    assert said.encode() in answer


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no host", "the request must have one host header"),
        ("two hosts", "the request must have one host header"),
        ("a long header", "request line and headers have more than 65,536 bytes"),
        ("a blank before the colon", "the request is not valid HTTP"),
    ],
)
def test_the_refusal_of_a_head_says_why(service, name, why):
    received = exchanged(service.url, BROKEN[name](service))
    assert json.loads(received.partition(b"\r\n\r\n")[2])["issue"][0]["diagnostics"] == why


ODD = {
    "an absolute address": (lambda s: get(s, start="GET http://elsewhere.example/Task HTTP/1.1"), 200),
    "an asterisk": (lambda s: get(s, start="OPTIONS * HTTP/1.1"), 404),
    "a tunnel": (lambda s: get(s, start="CONNECT elsewhere.example:443 HTTP/1.1"), 400),
    "HTTP/1.0": (lambda s: request_of(s, start="GET /Task HTTP/1.0"), 200),
    "HTTP/1.0 without a host": (
        lambda s: request_of(s, start="GET /Task HTTP/1.0").replace(b"host: x\r\n", b""),
        200,
    ),
    "blank lines before": (lambda s: b"\r\n\r\n" + get(s), 200),
    "a change of protocol": (lambda s: get(s, "connection: upgrade", "upgrade: websocket"), 200),
    "a tunnel and a change": (
        lambda s: get(s, "connection: upgrade", "upgrade: x", start="CONNECT elsewhere.example:443 HTTP/1.1"),
        400,
    ),
    "bytes that are no ASCII": (lambda s: get(s, "x-a: \xff\xfe", "accept: \xe9"), 200),
    "two tokens": (lambda s: get(s, "authorization: Bearer other"), 200),
    "two types": (
        lambda s: get(s, "content-type: application/json", "content-type: text/plain", start="POST /Task HTTP/1.1"),
        400,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_but_valid_http_is_answered_as_usual(service, name):
    make, status = ODD[name]
    received = exchanged(service.url, make(service))
    assert statuses(received) == [status], received[:300]


@pytest.mark.parametrize("size", [1, 100_000, 400_000])
def test_a_body_behind_a_wish_for_another_protocol_is_read(service, size):
    """Java's own client asks for HTTP/2 with every request; so does `curl --http2`."""
    wish = "connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA"
    body = with_meta('"' + "y" * size + '"').encode()
    lines = *wish, "content-type: application/json", f"content-length: {len(body)}"
    one = request_of(service, *lines, start="POST /Task HTTP/1.1", body=body)
    received = exchanged(service.url, one * 2 + get(service, *wish))
    assert statuses(received) == [201, 201, 200], received[:300]


def test_a_compressed_body_is_refused_with_the_reason(service):
    """LIMIT-06: it could unpack to any size."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = service.client.post("/Task", content=gzip.compress(b"{}"), headers=headers)
    assert (answer.status_code, "the body is compressed" in answer.text) == (400, True)
    plain = service.client.post("/Task", content=b"{}", headers=headers | {"content-encoding": "identity"})
    assert "compressed" not in plain.text


def test_a_second_request_cannot_hide_in_the_first(service):
    """A body that a request does not announce is the next request, and needs a token of its own."""
    hidden = b"GET /Task HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    received = exchanged(
        service.url, request_of(service, "content-length: 0", start="POST /Task HTTP/1.1", body=hidden)
    )
    assert statuses(received) == [400, 401]
