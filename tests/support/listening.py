"""A server on loopback that accepts all requests, and keeps them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.serving import Answers, served


@dataclass
class Heard:
    """The requests that a listener got: path and body of each."""

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def of(self, path: str) -> list[bytes]:
        return [body for to, body in self.bodies if to == path]


@contextmanager
def listener() -> Iterator[Heard]:
    """Serve on an address that accepts all requests."""

    class Handler(Answers):
        def do_POST(self) -> None:
            heard.bodies.append((self.path, self.sent()))
            self.answer(200)

    with served(Handler) as url:
        heard = Heard(url)
        yield heard
