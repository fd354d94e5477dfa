"""A real HAPI FHIR JPA server over a PostgreSQL of its own, with the samples' reference data; all is gone at the end.

It is the one that `make bench-peers` builds, from published artifacts of a pinned version.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import servers
from tests.support.commands import command, environment

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
PROGRAMS = ("java", "mvn")
PROFILE = (
    'software = "HAPI FHIR Server"\ntotal = "accurate"\noffset = "_getpagesoffset"\nconflict = 409\nbalances = true\n'
)


def missing() -> str | None:
    """What has to be installed first, in one sentence; None if all is there."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    absent += [] if servers.postgres_programs() else ["PostgreSQL"]
    return f"not installed: {', '.join(absent)}" if absent else None


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server, new and empty but for the reference data."""
    servers.build()
    with servers.cluster() as made:
        settings = {
            "HAPI_URL": f"jdbc:postgresql://127.0.0.1:{made.port}/hapi?reWriteBatchedInserts=true",
            "HAPI_USER": servers.USER,
            "HAPI_PASSWORD": made.password,
        }
        target = servers.HAPI / "target"
        classes = f"{target / 'hapi-peer-1.jar'}{os.pathsep}{target / 'lib'}/*"
        program = ("java", "-Xmx1500m", "-cp", classes, "HapiPeer")
        with servers.started("HAPI", program, folder / "hapi.log", settings) as process:
            url = servers.first_line("HAPI", process, folder / "hapi.log").strip()
            chartferry(new_home(folder / "reference-home"), url, "reference", "load", SAMPLES / "reference")
            yield url


def new_home(folder: Path) -> Path:
    """A home that computes balances, which HAPI keeps none of."""
    (folder / "targets").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
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


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="hapi-") as name:
        yield Path(name)
