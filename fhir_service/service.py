"""A service: one store with its writer, cache, audit and tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from fhir_service import ids
from fhir_service.audit.records import Audit
from fhir_service.auth.clients import Auth
from fhir_service.body_memory import InHand
from fhir_service.interactions.documents import Documents
from fhir_service.interactions.read import ResourceReader
from fhir_service.interface.site import Site
from fhir_service.metrics import Metrics
from fhir_service.settings import TOKEN_PATH, Settings
from fhir_service.store.bodies import BodyCache
from fhir_service.store.store import Store
from fhir_service.writing.writer import Writer

VERSION = version("chartferry")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Service:
    """All parts that the handlers of the application use."""

    settings: Settings
    site: Site
    store: Store
    writer: Writer
    reader: ResourceReader
    auth: Auth
    documents: Documents
    audit: Audit
    metrics: Metrics
    in_hand: InHand
    clock: Callable[[], datetime]
    new_id: Callable[[], str]

    @classmethod
    def open(
        cls,
        settings: Settings,
        clock: Callable[[], datetime] = utc_now,
        new_id: Callable[[], str] = ids.new_id,
        create: bool = True,
    ) -> "Service":
        """Open the store of the settings. Raises what `Store.open` raises."""
        store = Store.open(settings.store, settings.memory_limit, create, settings.read_seconds)
        store.say_label(settings.store_path)
        site = settings.site
        # Without a cache if other processes write to the store: they would change what is kept here.
        bodies = BodyCache(0 if store.dialect.shared else settings.cache)
        metrics = Metrics(bodies)
        audit = Audit(settings.audit_path, store.signing_key)
        writer = Writer(store, site, clock, new_id, bodies, metrics.committed, metrics.collided, audit.witness)
        reader = ResourceReader(store, bodies)
        auth = Auth(store, writer, clock, new_id, audience=site.base_url + TOKEN_PATH)
        documents, in_hand = Documents(store, site, clock), InHand(max(settings.max_batch, settings.max_body))
        return cls(settings, site, store, writer, reader, auth, documents, audit, metrics, in_hand, clock, new_id)

    def close(self) -> None:
        """Write what waits, then close the store."""
        self.writer.close()
        self.audit.close()
        self.store.close()
