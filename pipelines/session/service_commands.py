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

SERVICE: tuple[str, ...] = (sys.executable, "-m", "fhir_service")
SOME_REFUSED = 3


def copy_named_store(store: str, to: Path, environ: Mapping[str, str]) -> None:
    """Copy any store, a file's or a database's: a password in its URL shows in no list of processes."""
    done = _command({**environ, "FHIR_SERVICE_STORE": store}, "copy", str(to))
    if done.returncode:
        raise TargetUnusable(f"the store could not be copied: {_said(done)}")


def load_store(store: Path, reference: Path, refused: Path, environ: Mapping[str, str]) -> None:
    """A new store with this reference data; what is refused of it goes to `refused`. Raises `TargetUnusable`."""
    done = _command(environ, "load", "--store", str(store), "--refused", str(refused), str(reference))
    if done.returncode not in (0, SOME_REFUSED):
        raise TargetUnusable(f"the reference data could not be loaded: {_said(done)}")


def load_reference(
    store: Path, files: Sequence[Path], refused: Path, label: str, environ: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Load NDJSON files, through the service that has the store open if one has; what is refused goes to `refused`.

    label: what the store holds from then on, see `label_of`. A file that holds no reference data is refused, and
    holds up no other. Gives the counts, a dict per type. Raises `TargetUnusable`.
    """
    options = ("--store", str(store), "--refused", str(refused), "--label", label, "--refuse-foreign", "--json")
    done = _command(environ, "load", *options, *map(str, files))
    if done.returncode not in (0, SOME_REFUSED):
        raise TargetUnusable(f"the reference data could not be loaded: {_said(done)}")
    counts: list[dict[str, Any]] = json.loads(done.stdout)["counts"]
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
    done = _command(environ, "names", "--store", str(store))
    if done.returncode:
        raise TargetUnusable(f"the names could not be read: {_said(done)}")
    names: dict[str, str] = json.loads(done.stdout)
    return names


def tell(store: Path, environ: Mapping[str, str], name: str, file: Path) -> None:
    """Have the store's charges or patients written to a file. Raises `TargetUnusable`."""
    done = _command(environ, "tell", "--store", str(store), name, str(file))
    if done.returncode:
        raise TargetUnusable(f"the {name} could not be read: {_said(done)}")


def add_client(store: Path, environ: Mapping[str, str]) -> bytes:
    done = _command(environ, "client", "add", "--store", str(store), "--name", "importer")
    if done.returncode:
        raise TargetUnusable(f"no client could be made at the bundled service: {_said(done)}")
    return done.stdout


def _command(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """One of the service's own commands, to its end."""
    return subprocess.run(  # noqa: S603 - a command of our own, no shell
        [*SERVICE, *arguments], capture_output=True, env=dict(environ), check=False, stdin=subprocess.DEVNULL
    )


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of what a command complained of."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("Error: ") if lines else "it said nothing"
