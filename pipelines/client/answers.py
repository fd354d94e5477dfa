"""The answer to a request, read whole, in bounded time and memory: some never end, or come a byte at a time."""

import time
from collections.abc import Iterator
from math import inf
from typing import Any

import httpx

from pipelines.client.replies import Late, Unknown

MOST_BYTES = 128 << 20
"""The most that an answer holds, unpacked: many times a page of 1,000 resources."""
TIMEOUTS = 2
"""Within so many timeouts an answer has to be whole: a timeout alone begins anew with each byte that comes."""
ABOUT_THE_BYTES = (b"content-encoding", b"content-length", b"transfer-encoding")
READ = httpx.ByteStream(b"")
"""In the place of an answer's stream, which refers back to the answer: all of a bundle would be held by that circle."""


class TooLarge(Unknown):
    """The answer holds more than any that is expected."""

    final = True


class InTime(httpx.SyncByteStream):
    """The bytes of an answer as they come. Raises `Late` once its time is over, though none of them can be unpacked."""

    def __init__(self, stream: httpx.SyncByteStream, seconds: float, ends: float) -> None:
        self._stream, self._seconds, self._ends = stream, seconds, ends

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            if time.monotonic() > self._ends:
                raise Late(f"its answer did not end within {self._seconds:g} seconds")
            yield part

    def close(self) -> None:
        self._stream.close()


def ask(http: httpx.Client, method: str, url: str, **given: Any) -> httpx.Response:
    """Send a request and return its answer. Raises as httpx does, `Late` and `TooLarge`."""
    seconds, content = TIMEOUTS * (http.timeout.read or inf), bytearray()
    ends = time.monotonic() + seconds
    with http.stream(method, url, **given) as answer:
        if isinstance(answer.stream, httpx.SyncByteStream):
            answer.stream = InTime(answer.stream, seconds, ends)
        for part in answer.iter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                raise TooLarge(f"its answer is larger than {MOST_BYTES >> 20} MiB")
    answer.stream = READ
    headers = [pair for pair in answer.headers.raw if pair[0].lower() not in ABOUT_THE_BYTES]
    return httpx.Response(answer.status_code, headers=headers, content=bytes(content))
