"""An address on loopback that takes whatever is sent there, and keeps it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.serving import Answers, served


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

    class Handler(Answers):
        def do_POST(self) -> None:
            heard.bodies.append((self.path, self.sent()))
            self.answer(200)

    with served(Handler) as url:
        heard = Heard(url)
        yield heard
