"""A real HAPI FHIR JPA server over a PostgreSQL of its own, with the samples' reference data; all is gone at the end.

It is the one that `make bench-peers` builds, from published artifacts of a pinned version.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.peers import servers
from pipelines.home.exits import SET_ASIDE
from tests.support.commands import command, environment

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
PROGRAMS = ("java", "mvn")
JSON = {"accept": "application/json", "cache-control": "no-cache"}
PROFILE = (servers.ROOT / "pipelines" / "client" / "targets" / "hapi.toml").read_text(
    encoding="utf-8"
) + "balances = true\n"


def missing() -> str | None:
    """Return a sentence that names the missing programs; None if all are installed."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    absent += [] if servers.postgres_programs() else ["PostgreSQL"]
    return f"not installed: {', '.join(absent)}" if absent else None


class Hapi:
    """A server that can be killed and started again, at one address."""

    def __init__(self, made: servers.Cluster, folder: Path) -> None:
        self._log, port = folder / "hapi.log", servers.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._settings = {
            "HAPI_URL": f"jdbc:postgresql://127.0.0.1:{made.port}/hapi?reWriteBatchedInserts=true",
            "HAPI_USER": servers.USER,
            "HAPI_PASSWORD": made.password,
            "HAPI_PORT": str(port),
        }

    def start(self) -> None:
        """Start it, and return once it answers."""
        target = servers.HAPI / "target"
        classes = f"{target / 'hapi-peer-1.jar'}{os.pathsep}{target / 'lib'}/*"
        program = ("java", "-Xmx1500m", "-cp", classes, "HapiPeer")
        self._running = ExitStack()
        self._process = self._running.enter_context(servers.started("HAPI", program, self._log, self._settings))
        servers.first_line("HAPI", self._process, self._log)
        httpx.get(f"{self.url}/metadata", timeout=600, trust_env=False).raise_for_status()  # its first takes long

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()
        self.stop()

    def stop(self) -> None:
        self._running.close()


@contextmanager
def serving(folder: Path, reference: Path | None = SAMPLES / "reference") -> Iterator[Hapi]:
    """A server, new and empty but for the reference data."""
    servers.build()
    with servers.cluster() as made:
        hapi = Hapi(made, folder)
        hapi.start()
        try:
            if reference:
                loaded = chartferry(new_home(folder / "reference-home"), hapi.url, "reference", "load", reference)
                assert loaded.returncode in (0, SET_ASIDE), loaded.stderr  # reports of a laboratory that is not there
            yield hapi
        finally:
            hapi.stop()


def new_home(folder: Path, balances: bool = True) -> Path:
    """A home that computes balances, which HAPI keeps none of, unless it is said otherwise."""
    (folder / "targets").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    if balances:
        (folder / "targets" / "hapi.toml").write_text(PROFILE, encoding="utf-8")
    return folder


def of_home(home: Path, url: str, *arguments: object) -> tuple[list[str], dict[str, str]]:
    """A command over a home that goes to the server, and its environment."""
    more = {"FHIR_BASE_URL": url, "FHIR_TOKEN": "none", "CHARTFERRY_SETTLING_SECONDS": "1"}
    return command("chartferry", "--home", home, *arguments), environment(**more)


def chartferry(home: Path, url: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command over a home to its end."""
    words, settings = of_home(home, url, *arguments)
    return subprocess.run(words, env=settings, capture_output=True, text=True, check=False, timeout=1800)


def said(home: Path, url: str, *arguments: object) -> dict[str, Any]:
    """Return the JSON that a command prints."""
    done = chartferry(home, url, *arguments, "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def there(url: str, source: str, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the server has of a source, each with its key."""
    system = f"urn:chartferry:{source}:{kind}"
    link = f"{url}/{kind}?identifier={system}%7C&_count=1000"
    while link:
        answer = httpx.get(link, headers=JSON, timeout=300, trust_env=False).raise_for_status()
        page: dict[str, Any] = answer.json()
        for body in (entry["resource"] for entry in page.get("entry", ())):
            named = body["identifier"]
            yield from (
                (one["value"], body)
                for one in (named if isinstance(named, list) else [named])
                if one["system"] == system
            )
        link = next((each["url"] for each in page.get("link", ()) if each["relation"] == "next"), "")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="hapi-") as name:
        yield Path(name)
