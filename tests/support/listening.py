"""An address on loopback that takes whatever is sent there, and keeps it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.serving import serving_in_a_thread


@dataclass
class Heard:
    """What a listener was sent: path and body of each request."""

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def of(self, path: str) -> list[bytes]:
        return [body for to, body in self.bodies if to == path]


@contextmanager
def listener() -> Iterator[Heard]:
    """An address that takes everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving_in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        heard = Heard(url)
        yield heard
