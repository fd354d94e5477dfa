"""Connect to the target: the one that the environment names, else the bundled service over `<home>/service.duckdb`."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fhir_service.interface.site import Site
from fhir_service.paths import exists
from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses, limiter_of, pace_of
from pipelines.client.profiles import as_declared, profile_for
from pipelines.client.replies import TargetUnusable
from pipelines.client.steps import BARE, Step, step_for
from pipelines.client.tokens import Credentials
from pipelines.home.files import write_whole
from pipelines.session.bundled import STORE, Address, Say, add_client, bundled_service, is_bundled, names, running, tell
from pipelines.session.named_target import named_target

TARGETS = "targets"
"""The folder of a home with profiles of the user's own."""


@dataclass(frozen=True)
class TargetConnection:
    """A target that answers. id: its name for the ledger; ours: True if it is a service of this project.

    names: reads the names of practitioners and groups by reference, which the interface does not show. tell: writes
    `charges` or `patients`, which it does not show either, to a file; None if they cannot be had. credentials: for
    other processes.
    """

    client: FhirClient
    capabilities: Capabilities
    base_url: str
    site: Site
    bundled: bool
    names: Callable[[], Mapping[str, str]] = dict
    tell: Callable[[str, Path], None] | None = None
    credentials: Credentials = field(default_factory=Credentials, repr=False)

    @property
    def id(self) -> str:
        return self.capabilities.store_id or self.base_url

    @property
    def ours(self) -> bool:
        return self.capabilities.store_id is not None

    def step(self, known_as: str, resource_type: str) -> Step:
        """Return how records of a type were sent to the target that has this name in the ledger.

        A target that was known by its address, and shows an id now, got them without identifiers.
        """
        return step_for(self.capabilities, resource_type) if known_as == self.id else BARE

    @property
    def label(self) -> str:
        """The target in one line, for the top of a summary."""
        return f"{self.base_url} (bundled service, {self.id})" if self.bundled else f"{self.base_url} ({self.id})"


@contextmanager
def connect(
    home: Path,
    environ: Mapping[str, str],
    insecure: bool = False,
    say: Say = lambda _: None,
    begun: Address | None = None,
) -> Iterator[TargetConnection]:
    """Yield the target after it has answered and granted access. Raises `BadSetting` and `TargetUnusable`.

    begun: the bundled service, if it is the target and was begun before.
    """
    if not is_bundled(environ):
        base_url, credentials = named_target(environ, insecure)
        with _connected(base_url, credentials, home, environ, bundled=False) as connection:
            connection.client.check_access()
            yield connection
        return
    with nullcontext(begun) if begun else bundled_service(home, environ, say) as answered:
        base_url = answered()
        credentials = _own_credentials(home, anew=False)
        if not _admits(base_url, credentials):
            credentials = _own_credentials(home, anew=True)
        with _connected(base_url, credentials, home, environ, bundled=True) as connection:
            connection.client.check_access()
            store = home / STORE
            yield replace(connection, names=partial(names, store), tell=partial(tell, store))


@contextmanager
def _connected(
    base_url: str, credentials: Credentials, home: Path, environ: Mapping[str, str], bundled: bool
) -> Iterator[TargetConnection]:
    with closing(FhirClient(base_url, credentials)) as asked:
        capabilities = asked.capabilities()
    profile = as_declared(profile_for(capabilities.name, home / TARGETS), capabilities)
    pace = pace_of(environ)
    pace = replace(pace, per_second=pace.per_second or profile.per_second)
    limiter = limiter_of(pace)
    paced = FhirClient(base_url, credentials, before_each=limiter, profile=profile, pages_at_once=pace.at_once)
    with closing(paced) as client:
        vendor = environ.get("FHIR_SERVICE_VENDOR") or Site.vendor
        customer = environ.get("FHIR_SERVICE_CUSTOMER") or Site.customer
        site = Site((capabilities.url or base_url).rstrip("/"), vendor, customer)
        yield TargetConnection(client, capabilities, client.base_url, site, bundled, credentials=credentials)


LOOK_SECONDS = 10.0
"""Seconds to wait for the target in `target_now`: sensors ask each minute, and their threads must not pile up."""


def target_now(home: Path, environ: Mapping[str, str]) -> str | None:
    """Return the target's name in the ledger, asking once; None if it does not answer, or no bundled service runs."""
    url = environ.get("FHIR_BASE_URL", "").rstrip("/") or running(home / STORE)
    if url is None:
        return None
    with closing(FhirClient(url, Credentials(), patience=RetryPauses(attempts=1), timeout=LOOK_SECONDS)) as client:
        try:
            return client.capabilities().store_id or client.base_url
        except TargetUnusable:
            return None


# -- the importer's client at the bundled service


def _own_credentials(home: Path, anew: bool) -> Credentials:
    path = home / "credentials.json"
    if anew or not exists(path):
        write_whole(path, json.dumps(add_client(home / STORE)).encode())
    try:
        client = json.loads(path.read_bytes())
        return Credentials(client_id=client["client_id"], client_secret=client["client_secret"])
    except (OSError, ValueError, KeyError, TypeError):
        raise TargetUnusable(f"{path} is damaged: remove it, and a new client is made") from None


def _admits(base_url: str, credentials: Credentials) -> bool:
    with closing(FhirClient(base_url, credentials)) as client:
        try:
            client.check_access()
        except TargetUnusable:
            return False
    return True
