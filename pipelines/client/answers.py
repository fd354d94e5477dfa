"""The answer to a request, read whole, in bounded time and memory: some never end, or come a byte at a time."""

from math import inf
from typing import Any

import httpx

from pipelines.client.connections import begin
from pipelines.client.replies import Unknown

MOST_BYTES = 128 << 20
"""The most that an answer holds, unpacked: many times a page of 1,000 resources."""
TIMEOUTS = 2
"""Within so many timeouts an answer has to be whole, its head too: a timeout alone begins anew with each byte."""
ABOUT_THE_BYTES = (b"content-encoding", b"content-length", b"transfer-encoding")
READ = httpx.ByteStream(b"")
"""In the place of an answer's stream, which refers back to the answer: all of a bundle would be held by that circle."""


class TooLarge(Unknown):
    """The answer holds more than any that is expected."""

    final = True


class Packed(Unknown):
    """The answer is packed several times over, as nobody asks for: a few bytes of it are more than memory holds."""

    final = True


def ask(http: httpx.Client, method: str, url: str, **given: Any) -> httpx.Response:
    """Send a request and return its answer. Raises as httpx does, `Late` and `TooLarge`."""
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
