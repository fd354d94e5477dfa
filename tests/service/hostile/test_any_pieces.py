"""A stream of requests is answered alike in whatever pieces it arrives, and junk ends the connection."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fhir_service.web import protocol
from tests.support.wire import Answer, Piece, Wire, wire

FIRST = b"GET /read HTTP/1.1\r\nhost: x\r\nx-number: 0\r\n\r\n"
SLOW = b"GET /late HTTP/1.1\r\nhost: x\r\nx-number: 0\r\n\r\n"


class Form(NamedTuple):
    """The form of a valid request, all but its number."""

    method: str
    target: str
    version: str
    connection: str
    upgrades: bool
    expects: bool
    framing: str
    body: bytes
    chunks: list[int]
    extension: bytes
    trailer: bytes
    more_head: int
    blank_lines: int
    more_answer: int

    @property
    def closes(self) -> bool:
        """True if the connection ends with its answer."""
        return self.version == "1.0" or self.connection == "close"

    def request(self, number: int) -> bytes:
        """The request as it is sent."""
        asked = [self.connection] * bool(self.connection) + ["Upgrade", "HTTP2-Settings"] * self.upgrades
        lines = [f"{self.method} {self.target} HTTP/{self.version}", "Host: x", f"X-Number: {number}", "x-empty:"]
        lines += ["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"] * self.upgrades
        lines += [f"Connection: {', '.join(asked)}"] * bool(asked)
        lines += ["Expect: 100-continue"] * (self.expects and self.version == "1.1")
        lines += [f"X-Size: {self.more_answer}", "x-more: " + "m" * self.more_head]
        body = b""
        if self.framing == "length":
            lines, body = [*lines, f"Content-Length: {len(self.body)}"], self.body
        elif self.framing == "chunks" and self.version == "1.1":
            lines, body = [*lines, "Transfer-Encoding: chunked"], b"".join(self.chunked())
        return b"\r\n" * self.blank_lines + "\r\n".join([*lines, "", ""]).encode() + body

    def chunked(self) -> Iterator[bytes]:
        """The body in chunks."""
        at, number, least = 0, 0, len(self.body) // 100
        while part := self.body[at : at + max(least, self.chunks[number % len(self.chunks)])]:
            yield b"%x%s\r\n%s\r\n" % (len(part), self.extension, part)
            at, number = at + len(part), number + 1
        yield b"0\r\n" + self.trailer + b"\r\n"


FORMS = st.builds(
    Form,
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS"]),
    target=st.sampled_from(["/read", "/read/a%20b?x=1&y=%2f", "/unread", "/late", "http://x.example/read?q=1"]),
    version=st.sampled_from(["1.1"] * 9 + ["1.0"]),
    connection=st.sampled_from([""] * 8 + ["close", "keep-alive"]),
    upgrades=st.booleans(),
    expects=st.booleans(),
    framing=st.sampled_from(["", "length", "chunks"]),
    body=st.binary(max_size=40) | st.sampled_from([FIRST, b"0\r\n\r\n", b"x" * 9_000, b"y" * 70_000, b"z" * 200_000]),
    chunks=st.lists(st.sampled_from([1, 2, 16, 1_000, 70_000]), min_size=1, max_size=3),
    extension=st.sampled_from([b"", b";a=b", b';a="b;c"']),
    trailer=st.sampled_from([b"", b"x-trailer: y\r\n"]),
    more_head=st.sampled_from([0, 0, 0, 100, 8_100, 64_000]),
    blank_lines=st.sampled_from([0, 0, 1, 2]),
    more_answer=st.sampled_from([0, 0, 100_000]),
)
TURNS = st.lists(st.sampled_from([0, 0, 1, 2, 5, 30]), min_size=1, max_size=4)
CUTS = st.lists(st.integers(0, 2_000_000), max_size=12)
WORDS = """
    GET_ POST_/read_ HTTP/1.1~ ~ ~~ Content-Length:_5~ Transfer-Encoding:_chunked~ Transfer-Encoding:_gzip~ 5~hello~ 0~~
    Connection:_upgrade~Upgrade:_h2c~ Expect:_100-continue~ GET_/read_HTTP/1.1~ CONNECT_x:443_HTTP/1.1~~ _folded~
    CONNECT_http://a/b_HTTP/1.1~~ PRI_*_HTTP/2.0~~SM~~ GET_//a_HTTP/1.1~ GET_http://x_HTTP/1.1~~ ffffffffffffffff~
    HEAD_/unread_HTTP/1.1~~ POST_/read_HTTP/1.1~Content-Length:_3~~ OPTIONS_*_HTTP/1.1~~
""".split()
TOKENS = [word.replace("_", " ").replace("~", "\r\n").encode() for word in WORDS] + [
    b"x: " + b"y" * 70_000,
    *(bytes([each]) for each in b"\n\r\0\xff"),
]
JUNK = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=30), max_size=8).map(b"".join)


@pytest.fixture(name="line", scope="module")
def line_of_connections() -> Iterator[Wire]:
    with wire() as made:
        yield made


def pieces(raw: bytes, cuts: list[int], turns: list[int]) -> list[Piece]:
    """The stream cut at these places, with turns of the loop between the pieces."""
    places = sorted({cut % (len(raw) + 1) for cut in cuts} | {0, len(raw)})
    return [(raw[a:b], turns[n % len(turns)]) for n, (a, b) in enumerate(pairwise(places))]


def answered_alone(line: Wire, forms: list[Form]) -> list[Answer]:
    """The answers of requests each sent whole on a connection of its own, up to the first that ends its connection."""
    found = []
    for number, form in enumerate(forms):
        found += line.exchanged([(form.request(number), 20)])
        assert (found[-1].status, found[-1].named) == (200, str(number))
        if form.closes:
            break
    return found


@settings(suppress_health_check=list(HealthCheck))
@given(forms=st.lists(FORMS, min_size=1, max_size=5), cuts=CUTS | st.none(), turns=TURNS, ended=st.booleans())
def test_requests_in_any_pieces_are_answered_as_each_alone(
    line: Wire, forms: list[Form], cuts: list[int] | None, turns: list[int], ended: bool
) -> None:
    """LIMIT-17: also a byte at a time, and by a client that ends its side of the connection then."""
    raw = b"".join(form.request(number) for number, form in enumerate(forms))
    if cuts is None:
        cuts = list(range(len(raw))) if len(raw) < 2_000 else []
    assert line.exchanged(pieces(raw, cuts, turns), ended) == answered_alone(line, forms)
    assert line.logged == []


@settings(suppress_health_check=list(HealthCheck))
@given(forms=st.lists(FORMS, max_size=3), junk=JUNK, cuts=CUTS, turns=TURNS, ended=st.booleans())
def test_junk_behind_requests_ends_the_connection_and_answers_none_of_them(
    line: Wire, forms: list[Form], junk: bytes, cuts: list[int], turns: list[int], ended: bool
) -> None:
    """LIMIT-17: at most the last answer is a bad request, and it comes behind those of the requests."""
    raw = b"".join(form.request(number) for number, form in enumerate(forms)) + junk
    alone = answered_alone(line, forms)
    found = line.exchanged(pieces(raw, cuts, turns), ended, bodiless=b"HEAD" in junk)
    before, behind = found[: len(alone)], found[len(alone) :]
    assert [answer._replace(headers={}) for answer in before] == [
        answer._replace(headers={}) for answer in alone[: len(before)]
    ]
    assert not (behind and any(form.closes for form in forms))
    assert {answer.status for answer in behind[:-1]} <= {100, 200}
    assert {answer.status for answer in behind[-1:]} <= {100, 200, 400, 408}
    assert line.logged == []


REFUSED_HEAD = Form("HEAD", "/read", "1.1", "", False, False, "chunks", FIRST, [1], b"", b"x-trailer: y\r\n", 0, 0, 0)


@settings(suppress_health_check=list(HealthCheck))
@example(form=REFUSED_HEAD, place=92, less=0, more=b" !", turns=[2])
@given(form=FORMS, place=st.integers(0, 10**6), less=st.integers(0, 3), more=st.binary(max_size=3), turns=TURNS)
def test_a_request_that_was_spoiled_anywhere_spoils_none_before_it(
    line: Wire, form: Form, place: int, less: int, more: bytes, turns: list[int]
) -> None:
    """LIMIT-17"""
    sound = form.request(1)
    at = place % len(sound)
    spoiled = sound[:at] + more + sound[at + less :]
    found = line.exchanged(pieces(FIRST + spoiled, [place], turns), bodiless=form.method == "HEAD")
    assert (found[0].status, found[0].named) == (200, "0")
    assert {answer.status for answer in found[1:-1]} <= {100, 200}
    assert {answer.status for answer in found[1:][-1:]} <= {100, 200, 400, 408}
    assert line.logged == []


CLOSED = {
    "a blank line": [(FIRST, 30), (b"\r\n", 0)],
    "a body": [(b"POST /unread HTTP/1.1\r\nhost: x\r\nx-number: 0\r\ncontent-length: 5\r\n\r\n", 30), (b"hello", 0)],
    "more than may come": [(SLOW.replace(b"1.1", b"1.0") + b"x" * 3 * protocol.LARGEST_HEAD, 0)],
    "half a chunk": [
        (FIRST + b"POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", 30),
    ],
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_connection_is_closed_whatever_came_behind_a_request(line: Wire, name: str) -> None:
    """LIMIT-17: with these, one was kept for ever, or closed without an answer."""
    assert line.exchanged(CLOSED[name])[0].named == "0"


def test_a_connection_without_a_request_gets_no_answer(line: Wire) -> None:
    """LIMIT-17: a client that connects early would take it for that of its first request."""
    assert line.exchanged([]) == []
    assert [answer.status for answer in line.exchanged([(b"GET /re", 0)])] == [400]


def test_a_head_begun_behind_a_request_has_its_own_time(line: Wire) -> None:
    """LIMIT-17: also if both came at once."""
    for parts in ([(FIRST, 30), (b"GET /re", 0)], [(FIRST + b"GET /re", 0)]):
        assert [answer.status for answer in line.exchanged(parts)] == [200, 400]


def test_connect_is_a_bad_request(line: Wire) -> None:
    """LIMIT-17: not to an address that looks like a resource's either."""
    assert [answer.status for answer in line.exchanged([(b"CONNECT http://a/read HTTP/1.1\r\n\r\n", 0)])] == [400]
