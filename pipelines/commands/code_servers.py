"""The code servers of clinics on other hosts, as the host of Dagster's pages and daemon sees them."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.commands.supervising import Say, no_answer
from pipelines.session.code_servers import CodeServer, host_and_port

SECONDS_BETWEEN_LOOKS = 5.0
PATIENCE = {"DAGSTER_GRPC_TIMEOUT_SECONDS": "15"}
"""How long the pages wait for an answer of a code server, one after another at their start; Dagster's own is 60."""


def workspace_of(servers: Sequence[CodeServer]) -> dict[str, tuple[str, int]]:
    """Return host and port of each code server, by the name of its clinic."""
    return {each.clinic: _at(each) for each in servers}


def environment_for(servers: Sequence[CodeServer]) -> dict[str, str]:
    """Return what pages and daemon need to reach these hosts: they are asked directly, and not through a proxy."""
    hosts = sorted({_at(each)[0].strip("[]") for each in servers})
    return {"no_grpc_proxy": ",".join(hosts)} if hosts else {}


def environment_of_pages(servers: Sequence[CodeServer], common: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the pages, which do not wait long for hosts that never answer.

    common: that of pages and daemon; what it says itself holds. A reload of definitions has a timeout of its own.
    """
    return {**PATIENCE, **common} if servers else dict(common)


def _at(server: CodeServer) -> tuple[str, int]:
    found = host_and_port(server.address)
    assert found  # noqa: S101 - the file was checked
    return found


@dataclass
class Watched:
    """Tells when a code server is out of reach, and when it is there again. silent: why it was out of reach last."""

    server: CodeServer
    say: Say
    silent: str | None = None
    due: float = 0.0
    thread: threading.Thread | None = field(default=None, repr=False)

    def look(self) -> None:
        """Start a look in a thread of its own, where one is due: a host that is gone lets it wait."""
        if time.monotonic() >= self.due and not (self.thread and self.thread.is_alive()):
            self.due = time.monotonic() + SECONDS_BETWEEN_LOOKS
            self.thread = threading.Thread(target=self.look_once, name=self.server.clinic, daemon=True)
            self.thread.start()

    def look_once(self) -> None:
        """Look, and tell what has changed since the last look."""
        before, self.silent = self.silent, no_answer(*_at(self.server))
        where = f"{self.server.clinic}: its code server at {self.server.address}"
        if self.silent and not before:
            self.say(f"{where} does not answer ({self.silent}); its imports wait; everything else goes on")
        elif before and not self.silent:
            self.say(f"{where} answers again")
