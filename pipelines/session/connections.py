"""Connect to the target: the one that the environment names, else the bundled service over `<home>/service.duckdb`.

Only this module starts the bundled service, and only as a process.
"""

import fcntl
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from fhir_service.interface.site import Site
from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient, is_loopback
from pipelines.client.pace import limiter_of, pace_of
from pipelines.client.profiles import PLAIN_PROFILE, Profile, profile_for
from pipelines.client.replies import TargetUnusable
from pipelines.client.signing import BadKey, SigningKey
from pipelines.client.tokens import Credentials
from pipelines.home.files import write_whole

SERVICE: tuple[str, ...] = (sys.executable, "-m", "fhir_service")
STORE = "service.duckdb"
LOCK = ".service.lock"
TARGETS = "targets"
"""The folder of a home with profiles of the user's own."""
SOME_REFUSED = 3
STARTS_WITHIN_SECONDS = 60.0
ENDS_WITHIN_SECONDS = 30.0
LISTENING = "listening on "
NAMES = (
    *("FHIR_BASE_URL", "FHIR_CLIENT_ID", "FHIR_CLIENT_SECRET", "FHIR_CLIENT_SECRET_FILE", "FHIR_CLIENT_KEY_FILE"),
    "FHIR_TOKEN",
)

Say = Callable[[str], None]


class BadTarget(Exception):
    """The target is named wrongly: one line that says how."""


@dataclass(frozen=True)
class Connection:
    """A target that answers. id: what the ledger knows it by; ours: it is a service of this project.

    names: read the names of practitioners and groups by reference; the interface does not show them. tell: write what
    else it does not show, `charges` or `patients`, to a file; None where that cannot be had. profile: what the target's
    statement does not say of it. credentials: what another process gets access by.
    """

    client: FhirClient
    capabilities: Capabilities
    base_url: str
    site: Site
    bundled: bool
    names: Callable[[], Mapping[str, str]] = dict
    tell: Callable[[str, Path], None] | None = None
    profile: Profile = PLAIN_PROFILE
    credentials: Credentials = field(default_factory=Credentials, repr=False)

    @property
    def id(self) -> str:
        return self.capabilities.store_id or self.base_url

    @property
    def ours(self) -> bool:
        return self.capabilities.store_id is not None

    @property
    def label(self) -> str:
        """The target in one line, for the top of a summary."""
        return f"{self.base_url} (bundled service, {self.id})" if self.bundled else f"{self.base_url} ({self.id})"


@contextmanager
def connect(
    home: Path, environ: Mapping[str, str], insecure: bool = False, say: Say = lambda _: None
) -> Iterator[Connection]:
    """The target, reachable and with access proved. Raises `BadTarget` and `TargetUnusable`."""
    if any(environ.get(name) for name in NAMES):
        base_url, credentials = named_target(environ, insecure)
        with _connected(base_url, credentials, home, environ, bundled=False) as connection:
            connection.client.check_access()
            yield connection
        return
    with bundled_service(home, environ, say) as base_url:
        credentials = _own_credentials(home, environ, anew=False)
        if not _admits(base_url, credentials):
            credentials = _own_credentials(home, environ, anew=True)
        with _connected(base_url, credentials, home, environ, bundled=True) as connection:
            connection.client.check_access()
            names, tell = partial(_names, home / STORE, environ), partial(_tell, home / STORE, environ)
            yield replace(connection, names=names, tell=tell)


@contextmanager
def _connected(
    base_url: str, credentials: Credentials, home: Path, environ: Mapping[str, str], bundled: bool
) -> Iterator[Connection]:
    capabilities = _capabilities(base_url, credentials)
    profile = profile_for(capabilities.name, home / TARGETS)
    pace = pace_of(environ)
    pace = replace(pace, per_second=pace.per_second or profile.file.per_second)
    client = FhirClient(base_url, credentials, before_each=limiter_of(pace), profile=profile.file)
    try:
        vendor = environ.get("FHIR_SERVICE_VENDOR") or Site.vendor
        customer = environ.get("FHIR_SERVICE_CUSTOMER") or Site.customer
        site = Site((capabilities.url or base_url).rstrip("/"), vendor, customer)
        yield Connection(client, capabilities, client.base_url, site, bundled, profile=profile, credentials=credentials)
    finally:
        client.close()


def _capabilities(base_url: str, credentials: Credentials) -> Capabilities:
    """What the target says of itself. Raises `TargetUnusable`."""
    client = FhirClient(base_url, credentials)
    try:
        return client.capabilities()
    finally:
        client.close()


# -- a target named in the environment


def named_target(environ: Mapping[str, str], insecure: bool) -> tuple[str, Credentials]:
    """Base URL and credentials from the environment. Raises `BadTarget`."""
    base_url = environ.get("FHIR_BASE_URL", "").rstrip("/")
    if not base_url:
        raise BadTarget("credentials are set but no target: set FHIR_BASE_URL")
    if not base_url.lower().startswith(("http://", "https://")):
        raise BadTarget("FHIR_BASE_URL is not an http:// or https:// address")
    token_url = environ.get("FHIR_TOKEN_URL") or None
    if set("@?#") & set(base_url):
        raise BadTarget("FHIR_BASE_URL holds more than an address: leave out user, password and what follows ? or #")
    for name, url in (("FHIR_BASE_URL", base_url), ("FHIR_TOKEN_URL", token_url)):
        if url and url.lower().startswith("http://") and not is_loopback(url) and not insecure:
            raise BadTarget(f"{name} is http:// beyond this machine: use https://, or --insecure")
    if token := environ.get("FHIR_TOKEN"):
        return base_url, Credentials(token=token)
    client_id, secret, key = environ.get("FHIR_CLIENT_ID"), _secret(environ), _key(environ)
    if secret and key:
        raise BadTarget("FHIR_CLIENT_KEY_FILE and a secret are both set: a client has one of them")
    if not client_id or not (secret or key):
        raise BadTarget(
            "set FHIR_CLIENT_ID and FHIR_CLIENT_SECRET (or FHIR_CLIENT_SECRET_FILE, or FHIR_CLIENT_KEY_FILE), or"
            " FHIR_TOKEN"
        )
    if key:
        return base_url, Credentials(client_id=client_id, token_url=token_url, key=key)
    return base_url, Credentials(client_id=client_id, client_secret=secret, token_url=token_url)


def _secret(environ: Mapping[str, str]) -> str | None:
    path = environ.get("FHIR_CLIENT_SECRET_FILE")
    if not path:
        return environ.get("FHIR_CLIENT_SECRET")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise BadTarget("FHIR_CLIENT_SECRET_FILE names a file that cannot be read") from None


def _key(environ: Mapping[str, str]) -> SigningKey | None:
    """Return the key that the environment names. Raises `BadTarget`."""
    path = environ.get("FHIR_CLIENT_KEY_FILE")
    if not path:
        return None
    try:
        return SigningKey.read(Path(path))
    except BadKey as error:
        raise BadTarget(f"FHIR_CLIENT_KEY_FILE: {error}") from None
    except OSError:
        raise BadTarget("FHIR_CLIENT_KEY_FILE names a file that cannot be read") from None


def target_now(home: Path, environ: Mapping[str, str]) -> str | None:
    """Return the name under which the ledger knows the target, by one look; None if it does not answer, or no bundled
    service runs.
    """
    url = environ.get("FHIR_BASE_URL", "").rstrip("/") or _running(home / STORE)
    if url is None:
        return None
    client = FhirClient(url, Credentials())
    try:
        return client.capabilities().store_id or client.base_url
    except TargetUnusable:
        return None
    finally:
        client.close()


# -- the bundled service


@contextmanager
def bundled_service(home: Path, environ: Mapping[str, str], say: Say = lambda _: None) -> Iterator[str]:
    """The base URL of the service over the home's store: the running one, else one that ends with this process."""
    store = home / STORE
    with _turn(home, say) as turn:
        if url := _running(store):
            turn.release()
            yield url
            return
        with _child(store, home / "service.log", environ) as url:
            yield url


class _Turn:
    """A lock on the home that ends with the process: one command at a time starts a service of its own."""

    def __init__(self, file: int) -> None:
        self._file: int | None = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def _turn(home: Path, say: Say) -> Iterator[_Turn]:
    file = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    turn = _Turn(file)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            say(f"waiting for process {holder or 'unknown'}, which works with the bundled service of this home")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        yield turn
    finally:
        turn.release()


def _running(store: Path) -> str | None:
    """The address of a service that runs over the store, if it answers."""
    try:
        note = json.loads(store.with_name(store.name + ".run").read_bytes())
        os.kill(int(note["pid"]), 0)
        url = str(note["url"]).rstrip("/")
        return url if httpx.get(f"{url}/health", timeout=10, trust_env=False).status_code == 200 else None
    except (OSError, ValueError, KeyError, TypeError, httpx.HTTPError, httpx.InvalidURL):
        return None


@contextmanager
def _child(store: Path, log: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """A service of our own. It ends when the pipe to it closes, which it does even when this process is killed."""
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
        url = _listening(child)
        if url is None:
            child.kill()
            raise TargetUnusable(f"the bundled service did not start: {_last_line(log, began)}")
        yield url
    finally:
        _end(child)


def _listening(child: subprocess.Popen[bytes]) -> str | None:
    """The address that the child prints; None when it ends or stays silent. What it prints later is dropped."""
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
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


# -- throw-away stores, for a rehearsal


def copy_store(home: Path, to: Path, environ: Mapping[str, str], say: Say = lambda _: None) -> None:
    """A consistent copy of the home's store, through the service that has it open. Raises `TargetUnusable`."""
    store = home / STORE
    starts_elsewhere = not _running(store) and (home / LOCK).exists()
    with _turn(home, say) if starts_elsewhere else nullcontext():
        copy_named_store(str(store), to, environ)


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


# -- reference data


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


def _names(store: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The names of practitioners and groups by reference, as `Practitioner/<id>`. Raises `TargetUnusable`."""
    done = _command(environ, "names", "--store", str(store))
    if done.returncode:
        raise TargetUnusable(f"the names could not be read: {_said(done)}")
    names: dict[str, str] = json.loads(done.stdout)
    return names


def _tell(store: Path, environ: Mapping[str, str], name: str, file: Path) -> None:
    """Have the store's charges or patients written to a file. Raises `TargetUnusable`."""
    done = _command(environ, "tell", "--store", str(store), name, str(file))
    if done.returncode:
        raise TargetUnusable(f"the {name} could not be read: {_said(done)}")


# -- the importer's client of the bundled service


def _own_credentials(home: Path, environ: Mapping[str, str], anew: bool) -> Credentials:
    path = home / "credentials.json"
    if anew or not path.exists():
        write_whole(path, _add_client(home / STORE, environ))
    try:
        client = json.loads(path.read_bytes())
        return Credentials(client_id=client["client_id"], client_secret=client["client_secret"])
    except (OSError, ValueError, KeyError, TypeError):
        raise TargetUnusable(f"{path} is damaged: remove it, and a new client is made") from None


def _admits(base_url: str, credentials: Credentials) -> bool:
    client = FhirClient(base_url, credentials)
    try:
        client.check_access()
    except TargetUnusable:
        return False
    finally:
        client.close()
    return True


def _add_client(store: Path, environ: Mapping[str, str]) -> bytes:
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
