"""A server of the standard library, in a thread of this process."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import HTTPServer
from threading import Thread


@contextmanager
def serving_in_a_thread(server: HTTPServer) -> Iterator[str]:
    """Serve, and end at once: `serve_forever` looks each half second whether it should, which each test would wait for.

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
