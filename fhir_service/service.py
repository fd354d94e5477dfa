"""A service: one store, its writer and what answers from them, put together."""

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from fhir_service.audit import Audit
from fhir_service.auth import TOKENS, Auth
from fhir_service.documents import Documents
from fhir_service.interface.site import Site
from fhir_service.metrics import Metrics
from fhir_service.settings import Settings
from fhir_service.store.store import Store
from fhir_service.writer import Writer

VERSION = version("chartferry")


def utc_now() -> datetime:
    return datetime.now(UTC)


_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _uuid4_of(digits: str) -> str:
    """The UUID of 32 random hexadecimal digits. Six bits say what it is (RFC 9562, section 5.4)."""
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class RandomIds:
    """UUIDs of version 4. Randomness is asked of the system for many at a time: a call for each costs more than it."""

    def __init__(self, at_once: int = 512) -> None:
        self._bytes = 16 * at_once
        self._pool: deque[str] = deque()
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if not self._pool:
                drawn = os.urandom(self._bytes).hex()
                self._pool.extend(drawn[at : at + 32] for at in range(0, len(drawn), 32))
            return _uuid4_of(self._pool.pop())


uuid4 = RandomIds()


@dataclass(frozen=True)
class Service:
    """Everything that the application's handlers use."""

    settings: Settings
    site: Site
    store: Store
    writer: Writer
    auth: Auth
    documents: Documents
    audit: Audit
    metrics: Metrics
    clock: Callable[[], datetime]
    new_id: Callable[[], str]

    @classmethod
    def open(
        cls,
        settings: Settings,
        clock: Callable[[], datetime] = utc_now,
        new_id: Callable[[], str] = uuid4,
        create: bool = True,
    ) -> "Service":
        """Opens the store of the settings. Raises what `Store.open` raises."""
        store = Store.open(settings.store, settings.memory_limit, create)
        site = settings.site
        metrics = Metrics()
        writer = Writer(store, site, clock, new_id, metrics.committed)
        # Only the process that writes alone hears of every revocation: others look each token up.
        auth = Auth(store, writer, clock, new_id, cached_tokens=0 if store.dialect.shared else TOKENS)
        documents, audit = Documents(store, site, clock), Audit(settings.audit_path)
        return cls(settings, site, store, writer, auth, documents, audit, metrics, clock, new_id)

    def close(self) -> None:
        """Finishes the writes that wait and closes the store."""
        self.writer.close()
        self.audit.close()
        self.store.close()
