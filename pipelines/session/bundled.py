"""The service over a home's store: a command starts it if none runs, and ends it when done.

A running service is asked through its door. The service's own commands, which do something to a store or read from it,
are run to their ends. Imports little: a command loads its other modules while the service starts.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import cache, partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fhir_service.admin.running_service import CommandError, Door
from fhir_service.paths import exists
from pipelines.home.files import locked_by_name
from pipelines.home.logs import last_line

SERVICE: tuple[str, ...] = (sys.executable, "-m", "fhir_service")
SOME_REFUSED = 3
NOT_LOADED = "the reference data could not be loaded"
"""The problem of a load that failed. A load that refused some records did not fail."""
STORE = "service.duckdb"
LOCK = ".service.lock"
STARTS_WITHIN_SECONDS = 60.0
ENDS_WITHIN_SECONDS = 30.0
LISTENING = "listening on "

Say = Callable[[str], None]
Address = Callable[[], str]
"""A function that waits until a service answers, and returns its base URL. Raises `TargetUnusable`."""

NAMES = (
    *("FHIR_BASE_URL", "FHIR_CLIENT_ID", "FHIR_CLIENT_SECRET", "FHIR_CLIENT_SECRET_FILE", "FHIR_CLIENT_KEY_FILE"),
    "FHIR_TOKEN",
)


def is_bundled(environ: Mapping[str, str]) -> bool:
    """True if no setting names a target, so that it is the home's bundled service."""
    return not any(environ.get(name) for name in NAMES)


@contextmanager
def bundled_service(home: Path, environ: Mapping[str, str], say: Say = lambda _: None) -> Iterator[Address]:
    """Begin the service over the home's store, and yield its address: a running one, else one that ends with this
    process.
    """
    store = home / STORE
    with ExitStack() as turn:
        turn.enter_context(_turn(home, say))
        if url := running(store):
            turn.close()
            yield lambda: url
            return
        with _child(store, home / "service.log", environ) as address:
            yield address


def _turn(home: Path, say: Say) -> AbstractContextManager[None]:
    """Return a lock on the home: only one command at a time starts a service of its own."""
    waiting = "waiting for process {}, which works with the bundled service of this home"
    return locked_by_name(home / LOCK, lambda holder: say(waiting.format(holder)))


def running(store: Path) -> str | None:
    """Return the address of a service that runs over the store; None if none answers."""
    door = Door.of(store)
    return door.url.rstrip("/") if door and _is_healthy(door.url) else None


def _is_healthy(url: str) -> bool:
    try:
        place = urlsplit(url)
        with closing(HTTPConnection(place.hostname or "", place.port, timeout=10)) as connection:
            connection.request("GET", f"{place.path.rstrip('/')}/health")
            return connection.getresponse().status == 200
    except (OSError, ValueError, HTTPException):
        return False


@contextmanager
def _child(store: Path, log: Path, environ: Mapping[str, str]) -> Iterator[Address]:
    """Run a service of our own. It ends when its input pipe closes, even if this process is killed."""
    command = [*SERVICE, "serve", "--store", str(store), "--port", "0", "--until-stdin-closes"]
    with log.open("ab") as errors:
        began = errors.tell()
        child = subprocess.Popen(  # noqa: S603 - a command of our own, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environ),
            start_new_session=True,
        )
    try:
        yield cache(partial(_address, child, log, began))
    finally:
        _end(child)


def _address(child: subprocess.Popen[bytes], log: Path, began: int) -> str:
    """Return the address of a child once it listens. Raises `TargetUnusable` with the log's last line from `began`."""
    if url := _listening(child):
        return url
    child.kill()
    raise _unusable(f"the bundled service did not start: {_last_line(log, began)}")


def _unusable(why: str) -> Exception:
    from pipelines.client.replies import TargetUnusable  # imports httpx

    return TargetUnusable(why)


def _listening(child: subprocess.Popen[bytes]) -> str | None:
    """Return the address that the child prints; None if it ends or stays silent. Later output is dropped."""
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(child.stdout.fileno(), 4096)
            said += part
            for line in said.decode("utf-8", "replace").splitlines(keepends=True):
                if line.startswith(LISTENING) and line.endswith("\n"):
                    threading.Thread(target=child.stdout.read, daemon=True).start()
                    return line.removeprefix(LISTENING).strip().rstrip("/")
            if not part:
                return None
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None  # noqa: S101 - a pipe was asked for
    child.stdin.close()
    for stop in (child.terminate, child.kill):
        try:
            child.wait(ENDS_WITHIN_SECONDS)
            break
        except subprocess.TimeoutExpired:
            stop()
    child.wait()
    if child.stdout:
        child.stdout.close()


def _last_line(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        return last_line(file.read()) or "it said nothing"


def copy_store(home: Path, to: Path, environ: Mapping[str, str], say: Say) -> None:
    """Copy the home's store consistently, through the service that has it open. Raises `TargetUnusable`."""
    store = home / STORE
    starts_elsewhere = not running(store) and exists(home / LOCK)
    with _turn(home, say) if starts_elsewhere else nullcontext():
        copy_named_store(str(store), to, environ)


# -- the service's own commands


def copy_named_store(store: str, to: Path, environ: Mapping[str, str]) -> None:
    """Copy a store, a file's or a database's. A password in its URL does not show in the list of processes."""
    _command({**environ, "FHIR_SERVICE_STORE": store}, "the store could not be copied", "copy", str(to))


def load_store(store: Path, reference: Path, refused: Path, environ: Mapping[str, str]) -> None:
    """Make a store with this reference data; refused records go to `refused`. Raises `TargetUnusable`."""
    _command(environ, NOT_LOADED, "load", "--store", str(store), "--refused", str(refused), str(reference))


def load_reference(
    store: Path,
    paths: Sequence[Path],
    environ: Mapping[str, str],
    refused: Path | None = None,
    label: str | None = None,
    takes_foreign: bool = True,
) -> dict[str, Any]:
    """Load NDJSON files, or folders of them, through the running service if it has the store open.

    Returns `counts`, a dict for each type, and the `refused_file` or None. Raises `TargetUnusable`.

    refused: the file for refused records, if not `<store>.refused.ndjson`. label: noted in the store as that of its
    newest load, see `label_of`. takes_foreign: True if a file without reference data is refused like a record, and
    does not stop the other files.
    """
    arguments: dict[str, Any] = {
        "paths": [str(path.absolute()) for path in paths],
        "refused": str(refused.absolute()) if refused else None,
        "label": label,
        "refuse_foreign": takes_foreign,
    }
    if done := _asked_if_open(store, NOT_LOADED, "load", arguments):
        return done
    options = ["--store", str(store), "--json", *(["--refuse-foreign"] if takes_foreign else [])]
    options += [f"--{name}={arguments[name]}" for name in ("refused", "label") if arguments[name]]
    found: dict[str, Any] = json.loads(_command(environ, NOT_LOADED, "load", *options, *arguments["paths"]))
    return found


def label_of(store: Path) -> str | None:
    """Return the label of the store's newest load, from the file beside it; None if it is unknown.

    A store restored from a copy gets its earlier label back once a service has opened it.
    """
    try:
        said = json.loads(store.with_name(f"{store.name}.loaded.json").read_bytes())
        return str(said["label"]) if said["store"] == store.stat().st_ino else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def names(store: Path) -> dict[str, str]:
    """Return the names of practitioners and groups by reference, as `Practitioner/<id>`. Raises `TargetUnusable`."""
    names: dict[str, str] = _asked(store, "the names could not be read", "names", {})["names"]
    return names


def tell(store: Path, name: str, file: Path) -> None:
    """Write the store's charges or patients to a file. Raises `TargetUnusable`."""
    _asked(store, f"the {name} could not be read", "tell", {"name": name, "to": str(file.absolute())})


def add_client(store: Path) -> dict[str, Any]:
    """Make a client for the importer; return what the service says about it. Raises `TargetUnusable`."""
    return _asked(store, "no client could be made at the bundled service", "client-add", {"name": "importer"})


def _asked(store: Path, problem: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of an operation of the service that has the store open. Raises `TargetUnusable`."""
    done = _asked_if_open(store, problem, operation, arguments)
    if done is None:
        raise _unusable(f"{problem}: the bundled service has ended")
    return done


def _asked_if_open(store: Path, problem: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result as `_asked` does; None if no service has the store open."""
    try:
        with suppress(ConnectionRefusedError):
            if door := Door.of(store):
                return door.ask(operation, arguments)
    except CommandError as error:
        raise _unusable(f"{problem}: {error}") from None
    return None


def _command(environ: Mapping[str, str], problem: str, *arguments: str) -> bytes:
    """Run one of the service's own commands to its end; return its output.

    Raises `TargetUnusable` if it fails, with the problem and the last line of its error output.
    """
    done = subprocess.run(  # noqa: S603 - a command of our own, no shell
        [*SERVICE, *arguments], capture_output=True, env=dict(environ), check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode == 0 or (problem is NOT_LOADED and done.returncode == SOME_REFUSED):
        return done.stdout
    raise _unusable(f"{problem}: {last_line(done.stderr) or 'it said nothing'}")
