"""An address on loopback that takes whatever is sent there, and keeps it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        heard = Heard(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield heard
        server.shutdown()
