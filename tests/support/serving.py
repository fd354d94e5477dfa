"""A server of the standard library, in a thread of this process."""

import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from threading import Thread


class Answers(BaseHTTPRequestHandler):
    """The handler of a server that logs no requests."""

    def sent(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in (headers or {"content-length": str(len(content))}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log no requests."""


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Log no errors of clients that are gone."""


def served(answers: Callable[..., BaseHTTPRequestHandler]) -> AbstractContextManager[str]:
    """Serve on loopback in a thread; see `serving_in_a_thread`."""
    return serving_in_a_thread(Server(("127.0.0.1", 0), answers))


@contextmanager
def serving_in_a_thread(server: HTTPServer) -> Iterator[str]:
    """Serve in a thread that ends at once. `serve_forever` checks only every half second whether it should end.

    Yields the address.
    """
    ended, end = socket.socketpair()

    def serve() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(server, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while not any(key.fileobj is ended for key, _ in selector.select()):
                server.handle_request()

    with server, closing(ended):
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            end.close()
            thread.join()
