"""Read the answer to a request whole, with limits of time and memory: some answers never end, or come byte by byte."""

from math import inf
from typing import Any

import httpx

from pipelines.client.connections import begin
from pipelines.client.replies import UnknownOutcome

MOST_BYTES = 128 << 20
"""The most bytes of an unpacked answer: many times a page of 1,000 resources."""
TIMEOUTS = 2
"""The number of timeouts for a whole answer with its head: one timeout alone begins anew with each byte."""
ABOUT_THE_BYTES = (b"content-encoding", b"content-length", b"transfer-encoding")
READ = httpx.ByteStream(b"")
"""Replaces an answer's stream, which refers back to the answer: that circle would keep whole bundles in memory."""


class TooLarge(UnknownOutcome):
    """The answer is larger than any expected one."""

    final = True


class Packed(UnknownOutcome):
    """The answer is compressed several times, unasked: a few bytes of it may unpack to more than memory holds."""

    final = True


def ask(http: httpx.Client, method: str, url: str, **given: Any) -> httpx.Response:
    """Send a request and return its answer. Raises as httpx does, and `Late`, `TooLarge` and `Packed`."""
    begin(TIMEOUTS * (http.timeout.read or inf))
    content = bytearray()
    with http.stream(method, url, **given) as answer:
        if len(answer.headers.get_list("content-encoding", split_commas=True)) > 1:
            raise Packed("its answer is packed more than once")
        for part in answer.iter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                raise TooLarge(f"its answer is larger than {MOST_BYTES >> 20} MiB")
    answer.stream = READ
    headers = [pair for pair in answer.headers.raw if pair[0].lower() not in ABOUT_THE_BYTES]
    return httpx.Response(answer.status_code, headers=headers, content=bytes(content))
