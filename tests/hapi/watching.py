"""A proxy before a server that tells when an import has come to a moment: a request of it, at one point on its way."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import httpx

from bench.network import Network, Server

ARRIVES, AT_WORK, DONE, HEARD, LOOKED_UP = "arrives", "at work", "done", "heard", "looked up"
"""A write is on its way and never arrives; the server has it and did not answer; has answered, and the answer is lost;
the answer was passed on. A search for identifiers is on its way."""


class Moments:
    """The awaited moment. then: the action at it. reached: set once the moment has come and the action is done.

    took: the seconds of the last write, of which a random share passes before the server counts as at work.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._lock = dice, threading.Lock()
        self._awaited, self._left = "", 0
        self._then: Callable[[], None] = lambda: None
        self.reached, self.took = threading.Event(), 1.0

    def expect(self, moment: str, number: int, then: Callable[[], None]) -> None:
        """Wait for a moment that has come so many times from now on."""
        with self._lock:
            self._awaited, self._left, self._then = moment, number, then
            self.reached.clear()

    def comes(self, moment: str) -> bool:
        """Note a moment; return True, once all is done, if it was the one that is waited for."""
        with self._lock:
            if moment != self._awaited:
                return False
            self._left -= 1
            if self._left:
                return False
            self._awaited = ""
        self._then()
        self.reached.set()
        return True

    def part_of_a_write(self) -> float:
        with self._lock:
            return self._dice.random() * self.took


class Watched(Network):
    """Hands requests on, and notes each moment on their way. What is on its way at the one waited for is lost."""

    moments: Moments

    def do_GET(self) -> None:
        lost = "identifier=" in self.path and self.moments.comes(LOOKED_UP)
        self.give(None if lost else self.asked(b""))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if answer := None if self.moments.comes(ARRIVES) else self.written(content):
            self.moments.took = answer.elapsed.total_seconds()
            if not self.moments.comes(DONE):
                self.give(answer)
                self.moments.comes(HEARD)
                return
        self.give(None)

    do_PUT = do_POST

    def written(self, content: bytes) -> httpx.Response | None:
        """The server's answer to a write; None where it gives none, or it is lost."""
        asking = self.pool.submit(self.asked, content)
        wait([asking], self.moments.part_of_a_write())
        return None if self.moments.comes(AT_WORK) else asking.result()

    def asked(self, content: bytes) -> httpx.Response | None:
        try:
            return self.ask(content)
        except httpx.HTTPError:
            return None

    def give(self, answer: httpx.Response | None) -> None:
        """Pass an answer on; where there is none, the connection ends."""
        if answer is None:
            self.close_connection = True
        else:
            self.answer(answer)
            self.wfile.flush()


@contextmanager
def watched(target: str, moments: Moments) -> Iterator[str]:
    """The address of a proxy before the target."""
    with httpx.Client(timeout=600, trust_env=False) as client, ThreadPoolExecutor(16) as pool:
        about = {"target": target, "single": False, "did": Counter(), "client": client, "pool": pool}
        with Server(("127.0.0.1", 0), type("ThisProxy", (Watched,), about | {"moments": moments})) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
