"""A service of its own process for fault runs: `python -m tests.faults.service FOLDER WORLD [--interface-only]`.

Prints one JSON line with its address and a client's credentials, and ends when its standard input does.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from pipelines.client.tokens import Credentials
from tests.conftest import running
from tests.support import loopback
from tests.support.commands import command, environment
from tests.support.starting import start

ROOT = Path(__file__).parents[2]
BRIEFLY = httpx.Limits(keepalive_expiry=1)


class Target(NamedTuple):
    """A service that runs, and what a client of it needs. own: a client that goes to it directly."""

    url: str
    credentials: Credentials
    own: httpx.Client

    def all_of(self, kind: str, patients: list[str]) -> dict[str, dict[str, Any]]:
        """By id, the resources of these patients."""
        about = "request" if kind == "PaymentNotice" else "patient"
        named = ",".join(f"Patient/{patient}" for patient in patients)
        found: dict[str, dict[str, Any]] = {}
        path: str | None = f"/{kind}?{about}={named}&_count=100"
        while path:
            page = self.own.get(path).raise_for_status().json()
            found |= {entry["resource"]["id"]: entry["resource"] for entry in page.get("entry", ())}
            path = next((link["url"] for link in page["link"] if link["relation"] == "next"), None)
        return found


@contextmanager
def serving(folder: Path, world: Path, bare: bool) -> Iterator[Target]:
    """A service over a new store in the folder, with the world loaded."""
    command = [sys.executable, "-m", "tests.faults.service", str(folder), str(world)]
    command += ["--interface-only"] if bare else []
    with start(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            about = json.loads(process.stdout.readline())
            with loopback.Client(base_url=about["url"], headers=about["headers"], timeout=60, limits=BRIEFLY) as own:
                yield Target(about["url"], Credentials(**about["credentials"]), own)
        finally:
            process.stdin.close()


class Mortal:
    """`fhir-service serve` over a store with the world loaded, to be killed and started again at the same address."""

    def __init__(self, folder: Path, world: Path, bare: bool) -> None:
        with running(folder, world) as found:
            added = found.service.auth.add_client("importer")
            self._headers = found.headers
        self._credentials = Credentials(client_id=added["client_id"], client_secret=added["client_secret"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        arguments = ["serve", "--store", folder / "service.duckdb", "--port", port]
        self._command = command("fhir-service", *arguments, *(["--interface-only"] if bare else []))

    def start(self) -> None:
        """Returns once it listens."""
        self._process = start(self._command, stdout=subprocess.PIPE, text=True, env=environment())
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("listening on")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @contextmanager
    def target(self) -> Iterator[Target]:
        """It runs, and is looked into by a client of its own; at the end it is killed."""
        self.start()
        try:
            with loopback.Client(base_url=self.url, headers=self._headers, timeout=60, limits=BRIEFLY) as own:
                yield Target(self.url, self._credentials, own)
        finally:
            self.kill()


def main() -> None:
    folder, world = map(Path, sys.argv[1:3])
    with running(folder, world, interface_only="--interface-only" in sys.argv) as found:
        added = found.service.auth.add_client("importer")
        credentials = {name: added[name] for name in ("client_id", "client_secret")}
        print(json.dumps({"url": found.url, "headers": found.headers, "credentials": credentials}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
