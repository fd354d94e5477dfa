"""The bundled service's own commands, each run to its end: what they do to a store, and what they tell of it.

Only this module and `bundled.py` start the service, and only as a process.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.client.replies import TargetUnusable
from pipelines.home.logs import last_line

SERVICE: tuple[str, ...] = (sys.executable, "-m", "fhir_service")
SOME_REFUSED = 3
NOT_LOADED = "the reference data could not be loaded"
"""The problem of a load that failed. One that refused some records is none."""


def copy_named_store(store: str, to: Path, environ: Mapping[str, str]) -> None:
    """Copy any store, a file's or a database's: a password in its URL shows in no list of processes."""
    _command({**environ, "FHIR_SERVICE_STORE": store}, "the store could not be copied", "copy", str(to))


def load_store(store: Path, reference: Path, refused: Path, environ: Mapping[str, str]) -> None:
    """A new store with this reference data; what is refused of it goes to `refused`. Raises `TargetUnusable`."""
    _command(environ, NOT_LOADED, "load", "--store", str(store), "--refused", str(refused), str(reference))


def load_reference(
    store: Path, files: Sequence[Path], refused: Path, label: str, environ: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Load NDJSON files, through the service that has the store open if one has; what is refused goes to `refused`.

    label: what the store holds from then on, see `label_of`. A file that holds no reference data is refused, and
    holds up no other. Gives the counts, a dict per type. Raises `TargetUnusable`.
    """
    options = ("--store", str(store), "--refused", str(refused), "--label", label, "--refuse-foreign", "--json")
    said = json.loads(_command(environ, NOT_LOADED, "load", *options, *map(str, files)))
    counts: list[dict[str, Any]] = said["counts"]
    return counts


def label_of(store: Path) -> str | None:
    """The label of the newest load that the store holds, as it says beside itself; None where that is not known.

    A store that was put back from a copy says the label of then once a service has opened it.
    """
    try:
        said = json.loads(store.with_name(f"{store.name}.loaded.json").read_bytes())
        return str(said["label"]) if said["store"] == store.stat().st_ino else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def names(store: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The names of practitioners and groups by reference, as `Practitioner/<id>`. Raises `TargetUnusable`."""
    names: dict[str, str] = json.loads(_command(environ, "the names could not be read", "names", "--store", str(store)))
    return names


def tell(store: Path, environ: Mapping[str, str], name: str, file: Path) -> None:
    """Have the store's charges or patients written to a file. Raises `TargetUnusable`."""
    _command(environ, f"the {name} could not be read", "tell", "--store", str(store), name, str(file))


def add_client(store: Path, environ: Mapping[str, str]) -> bytes:
    """Return what the store says of a new client of the importer. Raises `TargetUnusable`."""
    arguments = ("client", "add", "--store", str(store), "--name", "importer")
    return _command(environ, "no client could be made at the bundled service", *arguments)


def _command(environ: Mapping[str, str], problem: str, *arguments: str) -> bytes:
    """Run one of the service's own commands to its end; return what it prints.

    Raises `TargetUnusable` if it fails: the problem, and the last line of what it complained of.
    """
    done = subprocess.run(  # noqa: S603 - a command of our own, no shell
        [*SERVICE, *arguments], capture_output=True, env=dict(environ), check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode == 0 or (problem is NOT_LOADED and done.returncode == SOME_REFUSED):
        return done.stdout
    raise TargetUnusable(f"{problem}: {last_line(done.stderr) or 'it said nothing'}")
