"""Raw HTTP requests."""

import httpcore
import httpx

TIMEOUT = dict.fromkeys(("connect", "read", "write", "pool"), 30.0)
"""Seconds after which a request that hangs fails."""


class Sender:
    """Send requests byte for byte: nothing is escaped or joined, and no redirect is followed."""

    def __init__(self, service, pool):
        self._pool = pool
        host, _, self._port = service.url.removeprefix("http://").partition(":")
        self._host, self._always = (
            host.encode(),
            {name.encode(): value.encode() for name, value in service.headers.items()},
        )

    def send(self, sent):
        headers = {b"host": self._host} | self._always | dict(sent.headers)
        url = httpcore.URL(scheme=b"http", host=self._host, port=int(self._port), target=sent.target.encode())
        answer = self._pool.request(
            sent.method, url, headers=list(headers.items()), content=sent.content, extensions={"timeout": TIMEOUT}
        )
        return httpx.Response(answer.status, headers=answer.headers, content=answer.content)
